"""Views of a vs report: the page's summary and charts, Markdown, rows, and the specification's document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Views
from evalq.evalcore.contract.repeats import repeated_notices
from evalq.evalcore.evaluators.vs.panels import METRICS, PANELS
from evalq.evalcore.evaluators.vs.score import ExpectationResult
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import (
    Chart,
    Column,
    Evidence,
    Mark,
    Row,
    Rows,
    State,
    Summary,
    Tile,
    highest_first,
    number,
    of_answered,
    passed_headline,
    rate_interval,
    state_of,
)
from evalq.evalcore.views.markdown import NONE, decimals, escape, input_faults, percent, table

_VERDICT_STATES: Mapping[str, State] = {"collapsed": "bad", "inconclusive": "doubtful", "diverse": "good"}
_NOWHERE: Mapping[str, tuple[str, State]] = {
    "holds": ("nowhere", "good"),
    "fails": ("found", "bad"),
    "inconclusive": ("undecided", "doubtful"),
}
_DRAWN_ISSUES = 15


def page_summary(report: Mapping[str, Json]) -> Summary:
    """How many tests passed, and whether there is mode collapse."""
    results = report["results"]
    run, cases, nowhere = results["test_run"], results["cases"], results["collapse_nowhere"]
    passed, tests, total, errors = run["passed"], run["passed"] + run["failed"], run["total_tests"], run["errors"]
    over = of_answered(
        (tests, total, "tests with a readable output"), (cases["answered"], cases["total"], "cases answered")
    )
    rate_note = "; ".join(filter(None, (rate_interval(passed, tests), over)))
    answered = f"{cases['answered']:,} of {cases['total']:,}"
    collapse_text, state = _NOWHERE.get(nowhere["verdict"], ("not known", "none"))
    collapsed = len(nowhere["collapsed"])
    collapse_note = f"{collapsed} of {nowhere['cases']} cases collapsed" if collapsed else f"{nowhere['cases']} cases"
    if nowhere["verdict"] == "fails" and not collapsed:
        collapse_note += " together"
    unread = f"{errors:,} outputs could not be read. " if errors else ""
    return Summary(
        passed_headline(passed, tests, "passed", "tests", {"no readable output": total - tests}),
        f"{unread}Mode collapse: {collapse_text} ({collapse_note}).",
        "none" if tests else "doubtful",
        tiles=(
            Tile("Pass rate", number(results["pass_rate"], "share"), rate_note, _doubtful(over)),
            Tile("Failed", number(run["failed"], "count")),
            Tile("No readable output", number(errors, "count"), state=_doubtful(errors)),
            Tile("Cases answered", answered, state=_doubtful(cases["answered"] < cases["total"])),
            Tile("Mode collapse", collapse_text, collapse_note, state),
            Tile("Diversity", number(results["diversity"], "points"), "mean over cases, 1 is even"),
        ),
    )


def _doubtful(reason: object) -> State:
    return "doubtful" if reason else "none"


def _shares(counts: Mapping[str, tuple[int, int, int]]) -> Iterator[Mark]:
    """The pass rate for each (passes, of, no readable output), with its interval; the lowest first.

    An entry without a test has a row without a value, before the others.
    """
    for name, (_, of, errors) in sorted(counts.items()):
        if not of:
            note = f"{errors:,} without a readable output" if errors else "no output"
            yield Mark(name, None, state="doubtful", note=note)
    known = [(part / of, name) for name, (part, of, _) in counts.items() if of]
    for share, name in sorted(known):
        part, of, errors = counts[name]
        note = f"{part:,} of {of:,}" + (f", {errors:,} without a readable output" if errors else "")
        yield Mark(name, share, *wilson(part, of), note=note)


def _agents(report: Mapping[str, Json]) -> Iterable[Mark]:
    counts: dict[str, tuple[int, int, int]] = {}
    for case, errors in _details(report):
        before = counts.get(case["agent"], (0, 0, 0))
        counts[case["agent"]] = (before[0] + case["passes"], before[1] + case["of"], before[2] + errors)
    return _shares(counts)


def _cases(report: Mapping[str, Json]) -> Iterable[Mark]:
    return _shares({case["test_id"]: (case["passes"], case["of"], errors) for case, errors in _details(report)})


def _details(report: Mapping[str, Json]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Each case, with the number of its outputs that could not be read."""
    runs = {entry["case"]: entry["runs"]["total"] for entry in report["results"]["mode_collapse"]}
    for case in report["results"]["test_run"]["detailed_results"]:
        yield case, runs.get(case["test_id"], case["of"]) - case["of"]


def _mode_shares(report: Mapping[str, Json]) -> Iterator[Mark]:
    """The cases nearest to collapse first; a single run has no share."""
    known = [case for case in report["results"]["mode_collapse"] if case["runs"]["valid"] > 1]
    for case in sorted(known, key=lambda case: (-case["mode_share"]["value"], case["case"])):
        share, verdict = case["mode_share"], case["verdict"]
        state = _VERDICT_STATES.get(verdict, "none")
        yield Mark(case["case"], share["value"], share["low"], share["high"], state, note=verdict.replace("_", " "))


def _collapse_limit(report: Mapping[str, Json]) -> float:
    return float(report["results"]["collapse_nowhere"]["collapse_share"])


def _diversity(report: Mapping[str, Json]) -> Iterator[Mark]:
    known = [case for case in report["results"]["mode_collapse"] if case["diversity_score"] is not None]
    for case in sorted(known, key=lambda case: (case["diversity_score"], case["case"])):
        modes = case["effective_modes"]["q1"]
        note = f"{modes:.1f} effective modes" if modes is not None else ""
        yield Mark(case["case"], case["diversity_score"], note=note)


def _issue_marks(report: Mapping[str, Json]) -> Iterable[Mark]:
    counts: Counter[str] = Counter()
    for level in report["results"]["test_run"]["summary"].values():
        for issue in level["issues"]:
            counts[issue["issue"]] += issue["tests"]
    return list(highest_first(counts))[:_DRAWN_ISSUES]


_CHARTS = (
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
        _collapse_limit,
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
    Chart("Commonest issues", "Tests in which each was found.", "bars", "count", _issue_marks, "Issue"),
)


# The Markdown

_BAR = 10
_LISTED_ISSUES = 10
_NAMED = 10
_VERDICTS = ("collapsed", "diverse", "inconclusive", "no_repeats", "no_data")
_FLAGS = {True: "detected", False: "not detected", None: NONE}
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


def _markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Overall health, level tiles, issues, mode collapse by case, and faults of the input."""
    results = report["results"]
    parts = [
        "# VS evaluation",
        _health(results),
        _tiles(report),
        _issues_text(results),
        _collapse(results),
        _stopping(results),
        table(_COLUMNS, [_case(entry) for entry in results["mode_collapse"]]),
        _NOTES,
        input_faults(report),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _health(results: Mapping[str, Json]) -> str:
    run, rate = results["test_run"], results["pass_rate"]
    # Of all tests, including those without an answer. Full only if all passed, and empty only if none did.
    filled = run["passed"] * _BAR // run["total_tests"] if run["total_tests"] else 0
    filled = max(filled, bool(run["passed"]))
    # An empty bar would look like a rate of 0 %.
    bar = "█" * filled + "░" * (_BAR - filled) if run["passed"] + run["failed"] else "no test was judged,"
    tests = f"{run['passed']} of {run['passed'] + run['failed']} tests passed"
    errors = f", {run['errors']} without a readable output" if run["errors"] else ""
    cases = f"{results['cases']['answered']} of {results['cases']['total']} cases answered"
    passed = f"{_percent(rate)} of what was answered" if run["errors"] and rate is not None else _percent(rate)
    return f"Overall health: {bar} {passed} ({tests}{errors}; {cases})"


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


def _issues_text(results: Mapping[str, Json]) -> str:
    issues = [issue for level in results["test_run"]["summary"].values() for issue in level["issues"]]
    if not issues:
        return "Recent issues: none"
    issues.sort(key=lambda issue: (-issue["tests"], issue["agent"], issue["issue"]))
    lines = [f"- {escape(i['agent'])}: {_short(i['issue'])} (tests: {i['tests']})" for i in issues[:_LISTED_ISSUES]]
    more = [f"- and {len(issues) - _LISTED_ISSUES} more in report.json"] if len(issues) > _LISTED_ISSUES else []
    return "\n".join(["Recent issues:", "", *lines, *more])


def _collapse(results: Mapping[str, Json]) -> str:
    entries, nowhere = results["mode_collapse"], results["collapse_nowhere"]
    verdicts = Counter(entry["verdict"] for entry in entries)
    flag = results["collapse_specified"]
    counted = ", ".join(f"{verdicts[name]} {name.replace('_', ' ')}" for name in _VERDICTS if verdicts[name])
    named = _list_cases([item["case"] for item in nowhere["collapsed"]])
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


def _list_cases(cases: list[str]) -> str:
    """The first cases by name; the table has all."""
    more = f", and {len(cases) - _NAMED} more in the table" if len(cases) > _NAMED else ""
    return ", ".join(map(_short, cases[:_NAMED])) + more


def _stopping(results: Mapping[str, Json]) -> str:
    """What stopping early saved; empty if no case could stop."""
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
    distinct = [entry["distinct"][count] for count in ("exact", "normalized", "fuzzy")]
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
        NONE if more is None else more,
    )


def _verdict(entry: Mapping[str, Json]) -> str:
    """The verdict, and the verdict with near-duplicates as one option, if that differs."""
    verdict, fuzzy = entry["verdict"].replace("_", " "), entry["fuzzy"]["verdict"]
    return verdict if fuzzy in (None, entry["verdict"]) else f"{verdict} ({fuzzy} with near-duplicates as one)"


def _share(share: Mapping[str, float | None]) -> str:
    if share["value"] is None:
        return NONE
    return f"{_number(share['value'])} ({_number(share['low'])} to {_number(share['high'])})"


_percent = partial(percent, missing=NONE)


_number = partial(decimals, digits=2)


def _short(text: str) -> str:
    return escape(shorten(text, 200))


# The rows


class _Phases(msgspec.Struct):
    passed: bool
    reason: str | None = None
    missing_phases: list[Any] = []


class _Parts(msgspec.Struct):
    passed: bool
    reason: str | None = None
    checks: dict[str, bool] = {}


class _CheckParts(msgspec.Struct):
    phases: _Phases | None = None
    provenance: _Parts | None = None
    t_scores: _Parts | None = None
    self_critique: _Parts | None = None
    expected: list[ExpectationResult] = []


class _TestRow(msgspec.Struct):
    """The keys of a line in records.jsonl that a row shows."""

    record: str
    id: str | None = None
    status: str = ""
    issue: str | None = None
    reason: str | None = None
    case: str | None = None
    repeat: int | None = None
    agent: str | None = None
    option: str | None = None
    faults: list[str] = []
    checks: msgspec.Raw = msgspec.Raw(b"null")


_checks = msgspec.json.Decoder(_CheckParts | None).decode


def _row_reader(report: Mapping[str, Json]) -> Callable[[_TestRow], Row | None]:
    wanted = {
        (case["id"], expected["key"]): _in_words(expected)
        for case in report["params"]["cases"]
        for expected in case["expected"]
    }

    def row(line: _TestRow) -> Row:
        cells = (line.agent, line.case, line.repeat, line.option)
        reason = line.issue or line.reason or ""
        state = state_of(line.status)
        status = line.status.lower()
        return Row(line.record, line.id or "", status, state, reason, cells, lambda: tuple(_evidence(line, wanted)))

    return row


def _in_words(expected: Mapping[str, Any]) -> str:
    want = msgspec.json.encode(expected["want"]).decode()
    return want if expected["op"] == "==" else f"{expected['op']} {want}"


def _evidence(line: _TestRow, wanted: Mapping[tuple[str, str], str]) -> Iterator[Evidence]:
    """What an output fails, then what it meets."""
    for fault in line.faults:
        path, _, what = fault.partition(": ")
        yield Evidence(f"contract: {path}", "as the contract has it", what)
    checks = _checks(line.checks)
    if checks is None:
        if not line.faults:
            yield Evidence("output", "one JSON object", line.issue or line.reason or "")
        return
    evidence = [*_validators(checks, line.issue or "")]
    for result in checks.expected:
        actual = "as expected" if result.passed else result.unmet.issue if result.unmet else "something else"
        want = wanted.get((line.case or "", result.key), "")
        evidence.append(Evidence(f"expected: {result.key}", want, actual.partition(", expected ")[0], result.passed))
    yield from sorted(evidence, key=lambda piece: piece.fine)


def _validators(checks: _CheckParts, issue: str) -> Iterator[Evidence]:
    if phases := checks.phases:
        missing = ", ".join(map(str, phases.missing_phases))
        actual = phases.reason or (f"missing: {missing}" if missing else "all executed")
        yield Evidence("phases", "all phases of its level executed", actual, phases.passed)
    if scores := checks.t_scores:
        reason = next((part for part in issue.split("; ") if part.startswith("T-scores: ")), "")
        actual = (
            "as expected" if scores.passed else scores.reason or reason.removeprefix("T-scores: ") or "not as expected"
        )
        yield Evidence("T-scores", "an option of low typicality, and no modal selection", actual, scores.passed)
    for name, parts in (("self-critique", checks.self_critique), ("provenance", checks.provenance)):
        if parts:
            expected = ", ".join(key.removeprefix("has_") for key in parts.checks)
            missing_parts = ", ".join(key.removeprefix("has_") for key, there in parts.checks.items() if not there)
            actual = parts.reason or (f"no {missing_parts}" if missing_parts else "all there")
            yield Evidence(name, expected, actual, parts.passed)


# The specification's result document

_RUN = ("total_tests", "passed", "failed", "errors", "summary", "detailed_results")
_LEVEL = ("agents_tested", "pass_rate", "avg_t_score_diversity", "phase_completion", "avg_self_critique_quality")
_DETAIL = ("test_id", "agent", "status", "passes", "of", "metrics", "issue", "remediation")
_DETAIL_METRICS = ("vs_phase_score", "t_score_diversity", "self_critique_quality", "provenance_completeness")


def results_document(report: Mapping[str, Json], timestamp: str) -> dict[str, Json]:
    """The content of results.yaml and `--format json`: ``test_run``, the other results, and the run's inputs, counts
    and faults.

    ``timestamp`` is ISO 8601. Levels are in the order of the params: full, enhanced, light.
    """
    results = report["results"]
    run = results["test_run"]
    levels = [f"{level['name'].lower()}_vs" for level in report["params"]["levels"]]
    summary = {key: _in_order(run["summary"][key], (*_LEVEL, "issues")) for key in levels}
    details = [
        _in_order({**detail, "metrics": _in_order(detail["metrics"], _DETAIL_METRICS)}, _DETAIL)
        for detail in run["detailed_results"]
    ]
    ordered = _in_order({**run, "summary": summary, "detailed_results": details}, _RUN)
    others = {key: value for key, value in results.items() if key != "test_run"}
    of_run = {key: report[key] for key in ("inputs", "records", "faults")}
    return {"test_run": {"timestamp": timestamp, **ordered}, **others, **of_run}


def _in_order(mapping: Mapping[str, Json], keys: Sequence[str]) -> dict[str, Json]:
    """``mapping`` in the specification's order of keys; canonical JSON has sorted them."""
    return {key: mapping[key] for key in keys if key in mapping}


def _case_failed(entry: Json) -> bool:
    """Whether an entry of a list in the report is of a case that did not pass, or is collapsed."""
    return isinstance(entry, dict) and (
        entry.get("status", "PASSED") != "PASSED" or entry.get("mode_collapse_detected") is True
    )


def _notices(report: Mapping[str, Json]) -> list[str]:
    """What is not counted, and what no output of a run has, so that numbers of it are missing."""
    results = report["results"]
    tested = results["test_run"]["passed"] + results["test_run"]["failed"]
    without = [each for each in results["mode_collapse"] if not each["most_common"]]
    notices = repeated_notices(report)
    if tested and len(without) == len(results["mode_collapse"]):
        notices.append("no output has a final_selection.option, so collapse cannot be measured")
    if unrecorded := results["cases"]["unrecorded"]:
        first = next(each["case"] for each in results["mode_collapse"] if not each["runs"]["total"])
        notices.append(f"{unrecorded} of {results['cases']['total']} cases have no output; the first: {first}")
    return notices


VIEWS = Views(
    METRICS,
    PANELS,
    _markdown,
    _notices,
    document=results_document,
    summary=page_summary,
    charts=_CHARTS,
    rows=Rows((Column("Agent"), Column("Case"), Column("Repeat", "number"), Column("Option")), _TestRow, _row_reader),
    at_times=("stopping",),
    failed=_case_failed,
)
