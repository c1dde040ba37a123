"""The vs dashboard as Markdown, from report.json's content alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.markdown import escape, input_faults, table

__all__ = ["markdown"]

_BAR = 10
_ISSUES = 10
_NAMED = 10
_NONE = "N/A"
_VERDICTS = ("collapsed", "diverse", "inconclusive", "no_repeats", "no_data")
_FLAGS = {True: "detected", False: "not detected", None: _NONE}
_COLUMNS = (
    "Case",
    "Agent",
    "Passed",
    "As specified",
    "Verdict",
    "Mode share (95 %)",
    "Distinct",
    "Modes",
    "Diversity",
    "Runs to decide",
)
_NOTES = (
    "Distinct options are counted as written, normalised, and with near-duplicates as one; "
    "modes are effective ones (Hill number of order 1). After so many further runs as a case is said to take, "
    "about every second case like it is decided."
)


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Overall health, level tiles, issues, mode collapse by case, and faults of the input."""
    results = report["results"]
    parts = [
        "# VS evaluation",
        _health(results),
        _tiles(report),
        _issues(results),
        _collapse(results),
        _stopping(results),
        table(_COLUMNS, [_case(entry) for entry in results["mode_collapse"]]),
        _NOTES,
        input_faults(report),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _health(results: Mapping[str, Json]) -> str:
    run, rate = results["test_run"], results["pass_rate"]
    # Of all tests, those without an answer among them; full for all of them alone, and empty for none alone.
    filled = run["passed"] * _BAR // run["total_tests"] if run["total_tests"] else 0
    filled = max(filled, bool(run["passed"]))
    bar = "█" * filled + "░" * (_BAR - filled)
    tests = f"{run['passed']} of {run['passed'] + run['failed']} tests passed"
    errors = f", {run['errors']} without a readable output" if run["errors"] else ""
    cases = f"{results['cases']['answered']} of {results['cases']['total']} cases answered"
    told = f"{_percent(rate)} of what was answered" if run["errors"] and rate is not None else _percent(rate)
    return f"Overall health: {bar} {told} ({tests}{errors}; {cases})"


def _tiles(report: Mapping[str, Json]) -> str:
    summary = report["results"]["test_run"]["summary"]
    tiles = [(level["name"], summary[f"{level['name'].lower()}_vs"]) for level in report["params"]["levels"]]
    rows: list[tuple[object, ...]] = [
        ("Passed", *(_percent(tile["pass_rate"]) for _, tile in tiles)),
        ("Phase", *(_percent(tile["phase_completion"]) for _, tile in tiles)),
        ("T-Score", *(_number(tile["avg_t_score_diversity"]) for _, tile in tiles)),
        ("Critique", *(_percent(tile["avg_self_critique_quality"]) for _, tile in tiles)),
    ]
    return table(("", *(f"{name} VS ({tile['agents_tested']})" for name, tile in tiles)), rows)


def _issues(results: Mapping[str, Json]) -> str:
    issues = [issue for level in results["test_run"]["summary"].values() for issue in level["issues"]]
    if not issues:
        return "Recent issues: none"
    issues.sort(key=lambda issue: (-issue["tests"], issue["agent"], issue["issue"]))
    lines = [f"- {escape(i['agent'])}: {_short(i['issue'])} (tests: {i['tests']})" for i in issues[:_ISSUES]]
    more = [f"- and {len(issues) - _ISSUES} more in report.json"] if len(issues) > _ISSUES else []
    return "\n".join(["Recent issues:", "", *lines, *more])


def _collapse(results: Mapping[str, Json]) -> str:
    entries, nowhere = results["mode_collapse"], results["collapse_nowhere"]
    verdicts = Counter(entry["verdict"] for entry in entries)
    flag = results["collapse_specified"]
    counted = ", ".join(f"{verdicts[name]} {name.replace('_', ' ')}" for name in _VERDICTS if verdicts[name])
    named = _named([item["case"] for item in nowhere["collapsed"]])
    error = f"family-wise error at most {nowhere['alpha']:.1%} ({nowhere['correction']})"
    verdict = nowhere["verdict"].replace("_", " ")
    if nowhere["verdict"] == "fails" and not named:
        named = f"the cases together, p {nowhere['together']:.2g}; none of them can be named"
    answer = f"{verdict} ({named})" if named else verdict
    count = f"{len(flag['detected'])} of {flag['cases']} cases with repeats"
    lines = [
        f"Mode collapse status: {flag['status'].replace('_', ' ')} as specified ({count})",
        f"Diversity of this run: {_number(results['diversity'])} (mean over cases of the specified score)",
        f"Verdicts at a mode share of {nowhere['collapse_share']:g}: {counted or 'none'}",
        f"Collapse nowhere: {answer}, over {nowhere['cases']} cases, {error}",
    ]
    return "\n\n".join(lines)


def _named(cases: list[str]) -> str:
    """Cases by name, some of many; the table has them all."""
    more = f", and {len(cases) - _NAMED} more in the table" if len(cases) > _NAMED else ""
    return ", ".join(map(_short, cases[:_NAMED])) + more


def _stopping(results: Mapping[str, Json]) -> str:
    """What stopping early saved; nothing where no case could."""
    stopping = results.get("stopping")
    if stopping is None:
        return ""
    calls = f"{stopping['calls_made']:,} of {stopping['calls_planned']:,} calls made, {stopping['calls_saved']:,} saved"
    return (
        f"Stopping {stopping['rule']}: {stopping['decided']} of {stopping['cases']} cases decided, "
        f"{stopping['undecided']} undecided; {calls}. Verdicts of these cases spend "
        f"their error, at most {stopping['alpha']:.1%} on either side, over the calls planned; shares are a confidence "
        "sequence. Both hold however often they were looked at"
    )


def _case(entry: Mapping[str, Json]) -> tuple[object, ...]:
    distinct = [entry["distinct"][way] for way in ("exact", "normalized", "fuzzy")]
    more = entry["runs_to_decide"]
    return (
        entry["case"],
        entry["agent"],
        f"{entry['passes']} of {entry['of']}",
        "no repeats" if entry["verdict"] == "no_repeats" else _FLAGS[entry["mode_collapse_detected"]],
        _verdict(entry),
        _share(entry["mode_share"]),
        " → ".join("?" if count is None else str(count) for count in distinct),
        _number(entry["effective_modes"]["q1"]),
        _number(entry["diversity_score"]),
        _NONE if more is None else more,
    )


def _verdict(entry: Mapping[str, Json]) -> str:
    """The verdict, and what it would be with near-duplicates as one where that is another."""
    said, fuzzy = entry["verdict"].replace("_", " "), entry["fuzzy"]["verdict"]
    return said if fuzzy in (None, entry["verdict"]) else f"{said} ({fuzzy} with near-duplicates as one)"


def _share(share: Mapping[str, float | None]) -> str:
    if share["value"] is None:
        return _NONE
    return f"{_number(share['value'])} ({_number(share['low'])} to {_number(share['high'])})"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f} %"


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _short(text: str) -> str:
    return escape(shorten(text, 200))
