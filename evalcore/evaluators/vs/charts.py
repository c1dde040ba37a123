"""What the page of a vs run begins with and draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, State, Summary, Tile, number, of_answered

__all__ = ["CHARTS", "opening"]

_VERDICTS: Mapping[str, State] = {"collapsed": "bad", "inconclusive": "doubtful", "diverse": "good"}
_NOWHERE: Mapping[str, tuple[str, State]] = {
    "holds": ("nowhere", "good"),
    "fails": ("found", "bad"),
    "inconclusive": ("undecided", "doubtful"),
}
_ISSUES = 15


def opening(report: Mapping[str, Json]) -> Summary:
    """How many tests passed, and what is known of mode collapse."""
    results = report["results"]
    run, nowhere, rate = results["test_run"], results["collapse_nowhere"], results["pass_rate"]
    tests = run["passed"] + run["failed"]
    found, state = _NOWHERE.get(nowhere["verdict"], ("not known", "none"))
    collapsed = len(nowhere["collapsed"])
    noted = f"{collapsed} of {nowhere['cases']} cases collapsed" if collapsed else f"{nowhere['cases']} cases"
    if nowhere["verdict"] == "fails" and not collapsed:
        noted += " together"
    cases = results["cases"]
    over = of_answered((tests, run["total_tests"], "tests with a readable output"), _cases_answered(results))
    noted_rate = "; ".join(filter(None, (_interval(run["passed"], tests), over)))
    # Of all tests: where three of four have no answer, one that passes is no whole.
    return Summary(
        f"{run['passed']:,} of {run['total_tests']:,} tests passed",
        _sentence(run, found, noted),
        tiles=(
            Tile("Pass rate", number(rate, "share"), noted_rate, "doubtful" if over else "none"),
            Tile("Failed", number(run["failed"], "count")),
            Tile("No readable output", number(run["errors"], "count"), state="doubtful" if run["errors"] else "none"),
            Tile(
                "Cases answered",
                f"{cases['answered']:,} of {cases['total']:,}",
                state="doubtful" if cases["answered"] < cases["total"] else "none",
            ),
            Tile("Mode collapse", found, noted, state),
            Tile("Diversity", number(results["diversity"], "points"), "mean over cases, 1 is even"),
        ),
    )


def _cases_answered(results: Mapping[str, Any]) -> tuple[int, int, str]:
    return results["cases"]["answered"], results["cases"]["total"], "cases answered"


def _sentence(run: Mapping[str, Any], found: str, noted: str) -> str:
    errors = f"{run['errors']:,} outputs could not be read. " if run["errors"] else ""
    return f"{errors}Mode collapse: {found} ({noted})."


def _interval(part: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(part, of)
    return f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def _shares(counts: Mapping[str, tuple[int, int, int]]) -> Iterator[Mark]:
    """The share of each, (passes, of, no readable output), with its interval; the lowest first.

    A row without any is there all the same, and has no value.
    """
    for name, (_, of, errors) in sorted(counts.items()):
        if not of:
            yield Mark(
                name, None, state="doubtful", note=f"{errors:,} without a readable output" if errors else "no output"
            )
    known = {
        name: (
            part / of,
            wilson(part, of),
            f"{part:,} of {of:,}" + (f", {errors:,} without a readable output" if errors else ""),
        )
        for name, (part, of, errors) in counts.items()
        if of
    }
    for name, (value, (low, high), note) in sorted(known.items(), key=lambda item: (item[1][0], item[0])):
        yield Mark(name, value, low, high, note=note)


def _agents(report: Mapping[str, Json]) -> Iterable[Mark]:
    counts: dict[str, tuple[int, int, int]] = {}
    for case, errors in _details(report):
        before = counts.get(case["agent"], (0, 0, 0))
        counts[case["agent"]] = (before[0] + case["passes"], before[1] + case["of"], before[2] + errors)
    return _shares(counts)


def _cases(report: Mapping[str, Json]) -> Iterable[Mark]:
    return _shares({case["test_id"]: (case["passes"], case["of"], errors) for case, errors in _details(report)})


def _details(report: Mapping[str, Json]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each case with how many of its outputs nobody could read."""
    runs = {entry["case"]: entry["runs"]["total"] for entry in report["results"]["mode_collapse"]}
    for case in report["results"]["test_run"]["detailed_results"]:
        yield case, runs.get(case["test_id"], case["of"]) - case["of"]


def _mode_shares(report: Mapping[str, Json]) -> Iterator[Mark]:
    """The cases nearest to collapse first; a single run has no share to speak of."""
    known = [case for case in report["results"]["mode_collapse"] if case["runs"]["valid"] > 1]
    for case in sorted(known, key=lambda case: (-case["mode_share"]["value"], case["case"])):
        share, said = case["mode_share"], case["verdict"]
        state = _VERDICTS.get(said, "none")
        yield Mark(case["case"], share["value"], share["low"], share["high"], state, note=said.replace("_", " "))


def _line(report: Mapping[str, Json]) -> float:
    return float(report["results"]["collapse_nowhere"]["collapse_share"])


def _diversity(report: Mapping[str, Json]) -> Iterator[Mark]:
    known = [case for case in report["results"]["mode_collapse"] if case["diversity_score"] is not None]
    for case in sorted(known, key=lambda case: (case["diversity_score"], case["case"])):
        modes = case["effective_modes"]["q1"]
        note = f"{modes:.1f} effective modes" if modes is not None else ""
        yield Mark(case["case"], case["diversity_score"], note=note)


def _issues(report: Mapping[str, Json]) -> Iterator[Mark]:
    counts: dict[str, int] = {}
    for level in report["results"]["test_run"]["summary"].values():
        for issue in level["issues"]:
            counts[issue["issue"]] = counts.get(issue["issue"], 0) + issue["tests"]
    for issue, tests in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_ISSUES]:
        yield Mark(issue, tests)


CHARTS = (
    Chart(
        "Pass rate by agent",
        "Tests that passed, of those with a readable output, with 95 % intervals (Wilson). The lowest come first.",
        "dots",
        "share",
        _agents,
        "Agent",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by case",
        "The same for each case of the golden set. The lowest come first.",
        "dots",
        "share",
        _cases,
        "Case",
        (0.0, 1.0),
    ),
    Chart(
        "Share of the commonest option",
        "How often a case was answered by its commonest option, with 95 % intervals. A case whose interval lies above "
        "the line is collapsed, one below it diverse; across it, more runs are needed.",
        "dots",
        "share",
        _mode_shares,
        "Case",
        (0.0, 1.0),
        _line,
    ),
    Chart(
        "Diversity by case",
        "Evenness of the options chosen over repeated runs: 1 is all equally often, 0 only one.",
        "bars",
        "points",
        _diversity,
        "Case",
        (0.0, 1.0),
    ),
    Chart("Commonest issues", "Tests in which each was found.", "bars", "count", _issues, "Issue"),
)
