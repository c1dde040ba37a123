"""The metrics of a vs report over time, and the specification's dashboard."""

from __future__ import annotations

from evalq.evalcore.evaluators.vs.params import LEVELS, Level
from evalq.evalcore.views.metrics import Metric, Panel, Plot, Threshold

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
        "Whether any case is collapsed: 1 some are, 0 none is, 0.5 undecided.",
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


_BAD_BELOW_HALF = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.8, "good"))
_SPREAD = (Threshold(None, "bad"), Threshold(0.3, "good"))
_COLLAPSE = (Threshold(None, "good"), Threshold(0.5, "doubtful"), Threshold(1.0, "bad"))

_NEUTRAL = (Threshold(None, "good"),)


def _level(level: Level) -> Panel:
    """The specification's box of a level: how many agents it has, and three numbers, of several suites the lowest."""
    held = (("level", level.key),)

    def lowest(metric: str, legend: str, thresholds: tuple[Threshold, ...]) -> Plot:
        return Plot(metric, (), "min", held, legend, beside="evalq_vs_level_agents", thresholds=thresholds)

    return Panel(
        f"{level.name} VS",
        "Agents tested, tests whose phases were all executed, spread of the T-scores (the specification wants 0.3) and "
        "checks of the self-critique that hold; of several suites the lowest. Not every level has each of them.",
        "share",
        "stat",
        (
            Plot("evalq_vs_level_agents", (), "max", held, "Agents", thresholds=_NEUTRAL),
            lowest("evalq_vs_level_phase_completion", "Phases", _BAD_BELOW_HALF),
            lowest("evalq_vs_level_t_score_diversity", "T-score", _SPREAD),
            lowest("evalq_vs_level_self_critique", "Critique", _BAD_BELOW_HALF),
        ),
        _BAD_BELOW_HALF,
        overview=True,
        width=6,
    )


PANELS = (
    Panel(
        "Overall health",
        "Share of tests that passed in the newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_vs_pass_rate", ("suite",), legend="{suite}"),),
        _BAD_BELOW_HALF,
        (0, 1),
        overview=True,
        width=6,
    ),
    *map(_level, LEVELS),
    Panel(
        "Recent issues",
        "What was wrong in the newest runs: in how many tests, of which agent.",
        "count",
        "table",
        (Plot("evalq_vs_issue_tests", ("suite", "level", "agent", "issue"), "max", legend="tests"),),
        overview=True,
        width=12,
    ),
    Panel(
        "Mode collapse",
        "Whether any case of the newest run is collapsed: detected where all cases together, or a single one among "
        "them, are collapsed beyond chance.",
        "state",
        "status",
        (Plot("evalq_vs_collapse", ("suite",), "max", legend="{suite}"),),
        _COLLAPSE,
        (0, 1),
        overview=True,
        width=6,
        words=((0, "not detected"), (0.5, "cannot tell yet"), (1, "detected")),
    ),
    Panel(
        "Mode collapse as specified",
        "Whether any case of the newest run has the specification's flag: evenness of its options below 0.3. Beside "
        "it, the verdict says how sure the commonest option's share makes that.",
        "state",
        "status",
        (Plot("evalq_vs_collapse_detected", ("suite",), "max", legend="{suite}"),),
        _COLLAPSE,
        (0, 1),
        overview=True,
        width=6,
        words=((0, "not detected"), (1, "detected")),
    ),
    Panel(
        "Cases answered",
        "Cases of the golden set, and those with at least one readable output.",
        "count",
        "stat",
        (
            Plot("evalq_vs_cases_answered", ("suite",), "min", legend="{suite} answered"),
            Plot("evalq_vs_cases", ("suite",), "min", legend="{suite} cases"),
        ),
        width=6,
    ),
    Panel(
        "Diversity",
        "Evenness of the options chosen in the newest run, mean over cases.",
        "points",
        "stat",
        (Plot("evalq_vs_diversity", ("suite",), legend="{suite}"),),
        _SPREAD,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Diversity of the last 10 runs",
        "Evenness of the options chosen, the newest run at 1.",
        "points",
        "bars",
        (Plot("evalq_vs_diversity", ("suite",), recent=True, legend="{suite}"),),
        _SPREAD,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Pass rate of the last 10 runs",
        "Share of tests that passed, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_vs_pass_rate", ("suite",), recent=True, legend="{suite}"),),
        _BAD_BELOW_HALF,
        (0, 1),
        width=12,
    ),
    Panel(
        "Pass rate",
        "Share of tests that passed, over time, by suite.",
        "share",
        "lines",
        (Plot("evalq_vs_pass_rate", ("suite",), legend="{suite}"),),
        _BAD_BELOW_HALF,
        (0, 1),
        width=12,
    ),
    Panel(
        "Diversity over time",
        "Evenness of the options chosen, mean over cases, by suite: below 0.3 the specification calls it collapsed.",
        "points",
        "lines",
        (Plot("evalq_vs_diversity", ("suite",), legend="{suite}"),),
        _SPREAD,
        (0, 1),
        width=12,
    ),
    Panel(
        "Pass rate by level",
        "Share of tests that passed, over time, by level.",
        "share",
        "lines",
        (Plot("evalq_vs_level_pass_rate", ("level",), legend="{level}"),),
        _BAD_BELOW_HALF,
        (0, 1),
        width=12,
    ),
    Panel(
        "Diversity by case",
        "Evenness of the options chosen, by case: below 0.3 the specification calls it collapsed.",
        "points",
        "table",
        (Plot("evalq_vs_case_diversity", ("suite", "agent", "case"), "min", legend="diversity"),),
        _SPREAD,
        (0, 1),
        width=12,
    ),
    Panel(
        "Collapse by case",
        "Whether a case is collapsed, each by itself: by the share of its commonest option and how sure that is.",
        "state",
        "status",
        (Plot("evalq_vs_case_collapse", ("agent", "case"), "max", legend="{case}"),),
        _COLLAPSE,
        (0, 1),
        width=12,
        words=((0.5, "cannot tell yet"),),
    ),
    Panel(
        "Commonest option's share",
        "Cases in which one option is chosen most of the time.",
        "share",
        "table",
        (Plot("evalq_vs_case_mode_share", ("suite", "agent", "case"), "max", legend="share"),),
        (Threshold(None, "good"), Threshold(0.7, "doubtful")),
        (0, 1),
        width=12,
    ),
    Panel(
        "Runs that would decide",
        "How many runs of a case tell whether it is collapsed, by case.",
        "count",
        "table",
        (Plot("evalq_vs_case_runs_to_decide", ("suite", "agent", "case"), "max", legend="runs"),),
        width=12,
    ),
    Panel(
        "Tests and outputs that are not readable",
        "How many outputs were tested, and how many were no JSON object.",
        "count",
        "lines",
        (
            Plot("evalq_vs_tests", ("suite",), "sum", legend="{suite} tests"),
            Plot("evalq_vs_errors", ("suite",), "sum", legend="{suite} not readable"),
        ),
        width=12,
    ),
    Panel(
        "Agents tested",
        "Agents of each level with a test in the newest run.",
        "count",
        "stat",
        (Plot("evalq_vs_level_agents", ("level",), "max", legend="{level}"),),
        width=6,
    ),
    Panel(
        "Passes by case",
        "Tests of each case that passed, and how many there were.",
        "count",
        "table",
        (
            Plot("evalq_vs_case_passes", ("suite", "agent", "case"), "sum", legend="passed"),
            Plot("evalq_vs_case_tests", ("suite", "agent", "case"), "sum", legend="tests"),
        ),
        width=18,
    ),
)
