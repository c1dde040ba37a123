"""How the self check's report is looked at over time."""

from __future__ import annotations

from evalq.evalcore.views.panels import Panel, Plot, Threshold

__all__ = ["PANELS"]

_PASSING = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.8, "good"))

PANELS = (
    Panel(
        "Completion claims that hold",
        "Share of completion reports that pass all questions, newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), legend="{suite}"),),
        _PASSING,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Claims that hold, over time",
        "Share of completion reports that pass all questions, by suite.",
        "share",
        "lines",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), legend="{suite}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "Claims that hold, last 10 runs",
        "Share that pass all questions, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), recent=True, legend="{suite}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "By question",
        "Share of completion reports that pass each of the four questions.",
        "share",
        "bars",
        (Plot("evalq_selfcheck_question_pass_rate", ("question",), legend="{question}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "Danger signals",
        "Completion reports of the newest run in which each signal was found.",
        "count",
        "bars",
        (Plot("evalq_selfcheck_signal_records", ("signal",), "sum", legend="{signal}"),),
        width=12,
    ),
    Panel(
        "Caught and wrongly stopped",
        "Where reports are labelled: hallucinated ones that the check stops (0.7 or more is "
        "wanted), and accurate ones that it stops (0.2 or less).",
        "share",
        "lines",
        (
            Plot("evalq_selfcheck_true_positive_rate", ("suite",), legend="{suite} caught"),
            Plot("evalq_selfcheck_false_positive_rate", ("suite",), legend="{suite} wrongly stopped"),
            Plot("evalq_selfcheck_precision", ("suite",), legend="{suite} precision"),
        ),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Goals and suspicions",
        "Completion reports that pass, whose goal could be verified, and was reached; and those that say all is done "
        "while their evidence does not carry it.",
        "count",
        "stat",
        (
            Plot("evalq_selfcheck_passed", (), "sum", legend="passed"),
            Plot("evalq_selfcheck_goals_verified", (), "sum", legend="goal verified"),
            Plot("evalq_selfcheck_goals_reached", (), "sum", legend="goal reached"),
            Plot("evalq_selfcheck_suspected", (), "sum", legend="suspected"),
        ),
        width=12,
    ),
)
