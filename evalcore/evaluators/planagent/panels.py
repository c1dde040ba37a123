"""How the plan agent's report is looked at over time."""

from __future__ import annotations

from evalq.evalcore.evaluators.planagent.params import TOP_SCORE
from evalq.evalcore.views.metrics import Panel, Plot, Threshold

__all__ = ["PANELS"]

_POINTS = (Threshold(None, "bad"), Threshold(2, "doubtful"), Threshold(4, "good"))
_RANGE = (0.0, float(TOP_SCORE))
_FAILURES = (Threshold(None, "good"), Threshold(0.01, "bad"))

PANELS = (
    Panel(
        "Plan agent's accuracy",
        "Mean score of the rows, 0 to 5, newest run of each suite.",
        "points",
        "gauge",
        (Plot("evalq_planagent_accuracy", ("suite",), legend="{suite}"),),
        _POINTS,
        _RANGE,
        overview=True,
        width=6,
    ),
    Panel(
        "Stability failures",
        "Share of rows that fail for stability: 1 % or more is a warning.",
        "share",
        "stat",
        (Plot("evalq_planagent_stability_failure_share", ("suite",), "max", legend="{suite}"),),
        _FAILURES,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "The five scores",
        "Accuracy, intent, consistency, stability and speed of the set, 0 to 5.",
        "points",
        "bars",
        (
            Plot("evalq_planagent_accuracy", legend="accuracy"),
            Plot("evalq_planagent_intent", legend="intent"),
            Plot("evalq_planagent_consistency", legend="consistency"),
            Plot("evalq_planagent_stability", ("reading",), legend="stability ({reading})"),
            Plot("evalq_planagent_speed_points", legend="speed"),
        ),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy over time",
        "Mean score of the rows, by suite.",
        "points",
        "lines",
        (Plot("evalq_planagent_accuracy", ("suite",), legend="{suite}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy of the last 10 runs",
        "Mean score of the rows, the newest run at 1.",
        "points",
        "bars",
        (Plot("evalq_planagent_accuracy", ("suite",), recent=True, legend="{suite}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Accuracy by round",
        "Mean score of the rows of each round.",
        "points",
        "bars",
        (Plot("evalq_planagent_round_accuracy", ("round",), legend="{round}"),),
        _POINTS,
        _RANGE,
        width=12,
    ),
    Panel(
        "Scores",
        "Rows of the newest run by score.",
        "count",
        "bars",
        (Plot("evalq_planagent_score_rows", ("score",), "sum", legend="{score}"),),
        width=12,
    ),
    Panel(
        "Seconds of an answer",
        "Mean seconds of an answer, by suite: up to 5 gives full points, over 20 none.",
        "seconds",
        "lines",
        (Plot("evalq_planagent_mean_seconds", ("suite",), legend="{suite}"),),
        (Threshold(None, "good"), Threshold(8, "doubtful"), Threshold(20, "bad")),
        width=12,
    ),
    Panel(
        "Seconds of the last 10 runs",
        "Mean seconds of an answer, the newest run at 1.",
        "seconds",
        "bars",
        (Plot("evalq_planagent_mean_seconds", ("suite",), recent=True, legend="{suite}"),),
        width=12,
    ),
    Panel(
        "Failures",
        "Rows that fail for stability, and rows without an answer at all.",
        "share",
        "lines",
        (
            Plot("evalq_planagent_stability_failure_share", ("suite",), "max", legend="{suite} stability"),
            Plot("evalq_planagent_failure_share", ("suite",), "max", legend="{suite} no answer"),
        ),
        _FAILURES,
        width=12,
    ),
    Panel(
        "Stability failures of the last 10 runs",
        "Share of rows that fail for stability, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_planagent_stability_failure_share", ("suite",), "max", recent=True, legend="{suite}"),),
        _FAILURES,
        width=12,
    ),
    Panel(
        "Failing checks",
        "Share of the checks of each kind that fail.",
        "share",
        "bars",
        (Plot("evalq_planagent_check_failure_rate", ("check",), legend="{check}"),),
        range=(0, 1),
        width=12,
    ),
)
