"""What of the vs report is watched over time."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]

_LEVELS = "test_run.summary.{level}."
_CASES = "mode_collapse[agent,case]."

METRICS = (
    Metric(
        "evalq_vs_pass_rate", "Tests that passed, of those with a readable output.", "share", "pass_rate", recent=10
    ),
    Metric(
        "evalq_vs_tests",
        "Tests of the newest run, outputs that are not readable included.",
        "count",
        "test_run.total_tests",
    ),
    Metric(
        "evalq_vs_errors",
        "Tests of the newest run without a readable output; a case that has none at all is one.",
        "count",
        "test_run.errors",
    ),
    Metric(
        "evalq_vs_diversity",
        "Evenness of the options chosen, mean over cases; 1 is all equally often, 0 is only one.",
        "points",
        "diversity",
        recent=10,
    ),
    Metric("evalq_vs_cases", "Cases of the golden set that were to be tested.", "count", "cases.total"),
    Metric("evalq_vs_cases_answered", "Cases with at least one readable output.", "count", "cases.answered"),
    Metric(
        "evalq_vs_collapse_detected",
        "Whether any case has the specification's flag of mode collapse; none where no case has repeats.",
        "state",
        "collapse_specified.status",
        states=(("not_detected", 0.0), ("detected", 1.0)),
    ),
    Metric(
        "evalq_vs_collapse",
        "Whether any case is collapsed: 1 some are, 0 none is, 0.5 cannot be told yet.",
        "state",
        "collapse_nowhere.verdict",
        states=(("holds", 0.0), ("inconclusive", 0.5), ("fails", 1.0)),
    ),
    Metric(
        "evalq_vs_level_agents", "Agents of a level that were tested.", "count", _LEVELS + "agents_tested", ("level",)
    ),
    Metric("evalq_vs_level_pass_rate", "Tests of a level that passed.", "share", _LEVELS + "pass_rate", ("level",)),
    Metric(
        "evalq_vs_level_phase_completion",
        "Tests of a level whose phases were all executed.",
        "share",
        _LEVELS + "phase_completion",
        ("level",),
    ),
    Metric(
        "evalq_vs_level_t_score_diversity",
        "Spread of T-scores, mean over a level's tests; none where it has none.",
        "points",
        _LEVELS + "avg_t_score_diversity",
        ("level",),
    ),
    Metric(
        "evalq_vs_level_self_critique",
        "Checks of the self-critique that hold; none at levels without one.",
        "share",
        _LEVELS + "avg_self_critique_quality",
        ("level",),
    ),
    Metric(
        "evalq_vs_issue_tests",
        "Tests in which an issue was found, the commonest issues only.",
        "count",
        _LEVELS + "issues[agent,issue].tests",
        ("level", "agent", "issue"),
        most=20,
    ),
    Metric(
        "evalq_vs_case_collapse",
        "Whether a case is collapsed: 1 yes, 0 no, 0.5 too few runs to tell.",
        "state",
        _CASES + "verdict",
        ("agent", "case"),
        states=(("diverse", 0.0), ("inconclusive", 0.5), ("collapsed", 1.0)),
    ),
    Metric(
        "evalq_vs_case_diversity",
        "Evenness of the options chosen for a case.",
        "points",
        _CASES + "diversity_score",
        ("agent", "case"),
    ),
    Metric(
        "evalq_vs_case_mode_share",
        "Share of a case's commonest option.",
        "share",
        _CASES + "mode_share.value",
        ("agent", "case"),
    ),
    Metric(
        "evalq_vs_case_runs_to_decide",
        "Runs of a case that would decide whether it is collapsed.",
        "count",
        _CASES + "runs_to_decide",
        ("agent", "case"),
    ),
    Metric("evalq_vs_case_passes", "Tests of a case that passed.", "count", _CASES + "passes", ("agent", "case")),
    Metric("evalq_vs_case_tests", "Tests of a case.", "count", _CASES + "of", ("agent", "case")),
)
