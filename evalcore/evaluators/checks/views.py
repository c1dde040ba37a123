"""Views of a checks report: Markdown, a page with charts, and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Views
from evalq.evalcore.evaluators.checks.diversity.report import describe_chain, describe_pairs, diversity_markdown
from evalq.evalcore.evaluators.checks.labels import LABEL_CHARTS, labels_markdown, notices, on_trust_line, plain_line
from evalq.evalcore.evaluators.checks.panels import METRICS, PANELS
from evalq.evalcore.evaluators.checks.user.report import reasons_without_verdict, user_tiles, users_markdown
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.lines import Lines
from evalq.evalcore.naming import shorten
from evalq.evalcore.views.charts import (
    MOST_MARKS,
    Chart,
    Column,
    Evidence,
    FirstMarks,
    Mark,
    Row,
    Rows,
    State,
    Summary,
    Tile,
    interval_text,
    number,
    of_answered,
    passed_headline,
    state_of,
)
from evalq.evalcore.views.markdown import NONE, decimals, escape, input_faults, percent_between, plural, table

_CASES = 50
_FAILURES = 20
_USED = (
    ("latency_seconds", "Seconds"),
    ("first_token_seconds", "Seconds to the first token"),
    ("cost", "Cost"),
    ("tokens", "Tokens"),
)
_VERDICTS = {
    "holds": "all cases reach theirs",
    "fails": "not reached",
    "inconclusive": "cannot be told yet",
    "none": "none set",
    "advisory": "advisory",
}


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The pass rate, thresholds, tags, checks, the cases with the lowest rates, failures, and faults of the input."""
    results = report["results"]
    parts = [
        "# Checks",
        _head(results),
        _thresholds(results["thresholds"]),
        _stopping(results),
        _rates("By tag", "Tag", "tag", results["by_tag"]),
        _rates("By check", "Check", "check", results["by_check"]),
        labels_markdown(results),
        users_markdown(results),
        _judges(results),
        _cases(results["by_case"]),
        diversity_markdown(results),
        _usage_table(results),
        _failures(results),
        input_faults(report),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _head(results: Mapping[str, Json]) -> str:
    outputs, cases = results["outputs"], results["cases"]
    judged = outputs["passed"] + outputs["failed"]
    bounds = results["pass_rate_interval"]
    passed = percent_between(results["pass_rate"], bounds["low"], bounds["high"])
    rate = f"Pass rate: {passed}, mean over {_over(outputs, cases)}"
    passed_text = passed_headline(outputs["passed"], judged, "passed", "outputs", reasons_without_verdict(outputs))
    lines = [rate, f"{passed_text}; {cases['answered']:,} of {cases['total']:,} cases answered"]
    if plain := plain_line(results):
        lines.insert(1, plain)
    known = [each for key in ("pass_at", "pass_hat") for each in _passes(results, key)]
    if known:
        lines.append("; ".join(known))
    return "\n\n".join(lines)


def _over(outputs: Mapping[str, int], cases: Mapping[str, int]) -> str:
    """The cases and outputs that a rate covers, if they are not all."""
    whole = cases["answered"] == cases["total"]
    cases_text = "cases" if whole else f"the {cases['answered']:,} of {cases['total']:,} cases that were answered"
    return cases_text + (", without the outputs that have no verdict" if outputs["errors"] else "")


def _passes(results: Mapping[str, Json], key: str) -> Iterator[str]:
    for entry in results[key]:
        if entry["value"] is not None and entry["k"] > 1:
            name = f"pass@{entry['k']}" if key == "pass_at" else f"pass^{entry['k']}"
            yield f"{name} {percent_between(entry['value'], entry['low'], entry['high'])}"


def _thresholds(decided: Mapping[str, Json]) -> str:
    if not decided["total"] + decided["advisory"]:
        return ""
    if not decided["total"]:
        return f"Thresholds: {_advisory(decided)}"
    failed = decided["failed"]
    named = f" ({', '.join(escape(shorten(case)) for case in failed[:10])})" if failed else ""
    counts = ", ".join(
        f"{decided[key]} {word}"
        for key, word in (
            ("holds", "hold"),
            ("fails", "fail"),
            ("inconclusive", "undecided"),
            ("no_data", "unanswered"),
        )
        if decided[key]
    )
    return (
        f"Thresholds: {_VERDICTS[decided['verdict']]}{named}. Of {decided['total']}, each by itself: {counts}; "
        f"error at most {decided['alpha']:.1%} on either side ({decided['correction']} over all of them)"
        + (f"; {advisory}" if (advisory := _advisory(decided)) else "")
    )


def _advisory(decided: Mapping[str, Json]) -> str:
    """The number of advisory thresholds."""
    count = decided["advisory"]
    return f"{count:,} rest on judges with too few labelled verdicts, and are advisory" if count else ""


def _stopping(results: Mapping[str, Json]) -> str:
    """What stopping early saved; nothing if no case could."""
    stopping = results.get("stopping")
    if stopping is None:
        return ""
    calls = f"{stopping['calls_made']:,} of {stopping['calls_planned']:,} calls made, {stopping['calls_saved']:,} saved"
    return (
        f"Stopping {stopping['rule']}: {stopping['decided']} of {stopping['cases']} cases with thresholds decided, "
        f"{stopping['undecided']} undecided; {calls}. Their verdicts spend an error of at most {stopping['alpha']:.1%} "
        "on either side over the calls planned; their rates have confidence sequences. Both hold however often they "
        "were looked at; rates over several cases do not"
    )


def _rates(title: str, head: str, key: str, entries: Sequence[Mapping[str, Json]]) -> str:
    if not entries:
        return ""
    rows: list[tuple[object, ...]] = [
        (
            shorten(entry[key]),
            percent_between(entry["pass_rate"], entry["low"], entry["high"]),
            entry["outputs"]["passed"],
            entry["outputs"]["failed"],
            entry["outputs"]["errors"],
        )
        for entry in entries[:_CASES]
    ]
    return f"## {title}\n\n" + table((head, "Pass rate (95 %)", "Passed", "Failed", "Errors"), rows)


def _judges(results: Mapping[str, Json]) -> str:
    """The judges; nothing without judges."""
    rows: list[tuple[object, ...]] = [
        (
            shorten(entry["judge"]),
            *(f"{entry['votes'][key]:,}" for key in ("asked", "read", "unreadable", "failed")),
            NONE if entry["cost"]["total"] is None else f"{entry['cost']['total']:.4g}",
            NONE if entry["latency_seconds"]["p50"] is None else f"{entry['latency_seconds']['p50']:.3g} s",
            _digests(entry["configs"]),
            _digests(entry["prompts"]),
        )
        for entry in results.get("judges", ())
    ]
    if not rows:
        return ""
    head = ("Judge", "Asked", "Read", "Unreadable", "Failed", "Cost", "Median", "Settings", "Prompts")
    return "## Judges\n\n" + table(head, rows)


def _digests(digests: Sequence[str]) -> str:
    more = f" and {len(digests) - 3} more" if len(digests) > 3 else ""
    return ", ".join(shorten(each)[:12] for each in digests[:3]) + more


def _cases(entries: Sequence[Mapping[str, Json]]) -> str:
    def order(entry: Mapping[str, Json]) -> tuple[bool, float, str]:
        value = entry["pass_rate"]["value"]
        return value is None, value or 0.0, entry["case"]

    rows: list[tuple[object, ...]] = []
    for entry in nsmallest(_CASES, entries, key=order):
        rate, outputs = entry["pass_rate"], entry["outputs"]
        demands = ", ".join(map(_threshold_text, entry["thresholds"]))
        judged = outputs["passed"] + outputs["failed"]
        rows.append(
            (
                shorten(entry["case"]),
                f"{outputs['passed']} of {judged}",
                percent_between(rate["value"], rate["low"], rate["high"]),
                decimals(entry["score"]),
                outputs["errors"],
                demands,
            )
        )
    title = "## By case" if len(entries) <= _CASES else f"## The {_CASES} cases with the lowest pass rates"
    return f"{title}\n\n" + table(("Case", "Passed", "Pass rate (95 %)", "Score", "Errors", "Thresholds"), rows)


def _threshold_text(entry: Mapping[str, Json]) -> str:
    verdict = entry["verdict"].replace("_", " ")
    return f"{entry['number']} {entry['least']:g}: {verdict}{' (advisory)' if entry.get('advisory') else ''}"


def _usage_table(results: Mapping[str, Json]) -> str:
    """The usage of outputs, if any record has it."""
    rows: list[tuple[object, ...]] = []
    for key, name in _USED:
        entry = results.get(key)
        if entry and entry["count"]:
            figures = (_format_figure(entry[part]) for part in ("mean", "p50", "p90", "p95", "p99", "max", "total"))
            rows.append((name, entry["count"], *figures))
    if not rows:
        return ""
    return "## What outputs took\n\n" + table(
        ("", "Outputs", "Mean", "Median", "90 %", "95 %", "99 %", "Most", "In all"), rows
    )


def _failures(results: Mapping[str, Json]) -> str:
    entries = results["failures"]
    if not entries:
        return ""
    rows: list[tuple[object, ...]] = [
        (f"{entry['input']}:{entry['line']}", entry["reason"]) for entry in entries[:_FAILURES]
    ]
    more = results["outputs"]["failed"] - len(rows)
    if more > 0:
        rows.append(("", f"and {more:,} more in records.jsonl"))
    return "## Outputs that failed\n\n" + table(("Where", "Why"), rows)


def _format_figure(value: float | None) -> str:
    return NONE if value is None else f"{value:,.4g}"


# The summary and the charts of the page.

_REACHED: Mapping[str, tuple[str, State]] = {
    "holds": ("reached", "good"),
    "fails": ("not reached", "bad"),
    "inconclusive": ("cannot tell yet", "doubtful"),
    "advisory": ("advisory", "none"),
}
_VERDICT_STATES: Mapping[str, State] = {"holds": "good", "fails": "bad", "inconclusive": "doubtful"}
_NOWHERE: Mapping[str, tuple[str, State]] = {
    "holds": ("nowhere", "good"),
    "fails": ("found", "bad"),
    "inconclusive": ("undecided", "doubtful"),
}
_KINDS: Mapping[str, State] = {"collapsed": "bad", "inconclusive": "doubtful", "diverse": "good"}


def page_summary(report: Mapping[str, Json]) -> Summary:
    """How many outputs passed, and whether cases reach their thresholds."""
    results = report["results"]
    outputs, decided, cases = results["outputs"], results["thresholds"], results["cases"]
    bounds = results["pass_rate_interval"]
    reached, state = _REACHED.get(decided["verdict"], ("none set", "none"))
    judged = outputs["passed"] + outputs["failed"]
    every = judged + outputs["errors"]
    over = of_answered((judged, every, "outputs with a verdict"), (cases["answered"], cases["total"], "cases answered"))
    note = "; ".join(filter(None, (interval_text(bounds["low"], bounds["high"]), over)))
    return Summary(
        passed_headline(outputs["passed"], judged, "passed", "outputs", reasons_without_verdict(outputs)),
        _sentence(results),
        "doubtful" if not judged else state if decided["total"] else "none",
        tiles=(
            Tile("Pass rate", number(results["pass_rate"], "share"), note, "doubtful" if over else "none"),
            *_people_tiles(results),
            Tile("Score", number(results["score"], "points"), "mean over cases"),
            Tile("Failed", number(outputs["failed"], "count")),
            Tile("No verdict", number(outputs["errors"], "count"), state="doubtful" if outputs["errors"] else "none"),
            Tile(
                "Cases answered",
                f"{cases['answered']:,} of {cases['total']:,}",
                state="doubtful" if cases["answered"] < cases["total"] else "none",
            ),
            Tile("Thresholds", reached, f"{decided['holds']:,} of {decided['total']:,} hold", state),
            *_collapse_tiles(results),
            *user_tiles(results),
            Tile("Median latency", number(results["latency_seconds"]["p50"], "seconds"), _first_token(results)),
            Tile("Cost", number(results["cost"]["total"], "number")),
        ),
    )


def _first_token(results: Mapping[str, Json]) -> str:
    """The median time to the first token; empty where no answer streamed."""
    known = results.get("first_token_seconds")
    return f"first token after {number(known['p50'], 'seconds')}" if known else ""


def _people_tiles(results: Mapping[str, Json]) -> Iterator[Tile]:
    """The pass rates by plain checks and by people's labels."""
    if "plain" not in results:
        return
    plain, corrected = results["plain"], results["labels"]["outputs"]["corrected"]
    yield Tile("By plain checks", number(plain["pass_rate"], "share"), interval_text(plain["low"], plain["high"]))
    if corrected["value"] is not None:
        yield Tile(
            "By people's labels",
            number(corrected["value"], "share"),
            interval_text(corrected["low"], corrected["high"]),
        )


def _collapse_tiles(results: Mapping[str, Json]) -> Iterator[Tile]:
    """Collapse and kinds, if answers are counted by kind."""
    if "diversity" in results:
        diversity = results["diversity"]
        answer, state = _NOWHERE.get(diversity["verdict"], ("not known", "none"))
        note = f"{diversity['verdicts']['collapsed']:,} of {diversity['cases']:,} cases, each by itself"
        yield Tile("Collapse", answer, note, state)
        yield Tile("Kinds of answers", number(diversity["effective_modes"], "number"), "effective, mean over cases")


def _sentence(results: Mapping[str, Json]) -> str:
    missing = results["cases"]["unrecorded"]
    parts = [f"{plural(missing, 'case')} without an output."] if missing else []
    parts += [advice] if (advice := on_trust_line(results)) else []
    return " ".join(parts)


def _rank(mark: Mark) -> tuple[bool, float, str]:
    return mark.value is not None, mark.value or 0.0, mark.label


def _lowest_first(marks: Iterable[Mark]) -> list[Mark]:
    return sorted(marks, key=_rank)


def _rate_marks(entries: Sequence[Mapping[str, Json]], key: str) -> list[Mark]:
    """The pass rates of entries, with their bounds."""
    return _lowest_first(
        Mark(entry[key], entry["pass_rate"], entry["low"], entry["high"], note=_note(entry["outputs"]))
        for entry in entries
        if entry["pass_rate"] is not None
    )


def _note(outputs: Mapping[str, int]) -> str:
    judged = outputs["passed"] + outputs["failed"]
    known = f"{outputs['passed']:,} of {judged:,}" if judged else ""
    without = f"{outputs['errors']:,} without a verdict" if outputs["errors"] else ""
    return ", ".join(filter(None, (known, without))) or "no output"


def _case_marks(report: Mapping[str, Json]) -> list[Mark]:
    entries = report["results"]["by_case"]
    if not isinstance(entries, Lines):
        return _lowest_first(map(_case_mark, entries))
    # Only the entries of the first rows become marks.
    first = FirstMarks(map(_case_mark, nsmallest(MOST_MARKS, entries, key=_entry_rank)))
    first.total = len(entries)
    return first


def _entry_rank(entry: Mapping[str, Json]) -> tuple[bool, float, str]:
    value = entry["pass_rate"]["value"]
    return value is not None, value or 0.0, entry["case"]


def _case_mark(entry: Mapping[str, Json]) -> Mark:
    rate = entry["pass_rate"]
    if rate["value"] is None:
        return Mark(entry["case"], None, state="doubtful", note=_note(entry["outputs"]))
    states = [_VERDICT_STATES.get(each["verdict"], "none") for each in entry["thresholds"]]
    state: State = next((s for s in ("bad", "doubtful", "good") if s in states), "none")
    return Mark(entry["case"], rate["value"], rate["low"], rate["high"], state, note=_note(entry["outputs"]))


def _shares(report: Mapping[str, Json]) -> Iterator[Mark]:
    """The cases nearest to collapse first, without those that have a single answer."""
    known = [entry for entry in report["results"].get("diversity", {}).get("by_case", ()) if entry["answers"] > 1]
    for entry in sorted(known, key=lambda entry: (-entry["mode_share"]["value"], entry["case"])):
        share, verdict = entry["mode_share"], entry["verdict"]
        kinds = f"{entry['effective_modes']['q1']:.1f} effective kinds"
        note = f"{verdict}{describe_chain(entry)}; {kinds}; collapsed above {entry['collapse_share']:g}"
        judged = describe_pairs(entry)
        note += f"; of pairs, a judge: {judged}" if judged else ""
        yield Mark(entry["case"], share["value"], share["low"], share["high"], _KINDS.get(verdict, "none"), note=note)


def _pass_chart(key: str) -> Chart:
    name = "pass@k" if key == "pass_at" else "pass^k"
    event = "one of k answers, at least, passes" if key == "pass_at" else "all of k answers pass"

    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        for entry in report["results"][key]:
            if entry["value"] is not None:
                label, note = name.replace("k", str(entry["k"])), f"{entry['cases']:,} cases"
                yield Mark(label, entry["value"], entry["low"], entry["high"], note=note)

    caption = f"The chance that {event}, mean over cases with so many answers, with 95 % intervals."
    return Chart(name, caption, "dots", "share", marks, "Of", (0.0, 1.0))


_RATE = "with 95 % intervals, cases being clusters of their answers. The lowest come first."

_CHARTS = (
    Chart(
        "Pass rate by case",
        "Outputs that passed, with exact 95 % intervals. The lowest come first.",
        "dots",
        "share",
        _case_marks,
        "Case",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by tag",
        f"Mean over the cases of a tag, {_RATE}",
        "dots",
        "share",
        lambda report: _rate_marks(report["results"]["by_tag"], "tag"),
        "Tag",
        (0.0, 1.0),
    ),
    Chart(
        "Pass rate by check",
        f"Outputs that passed a check, mean over its cases, {_RATE}",
        "dots",
        "share",
        lambda report: _rate_marks(report["results"]["by_check"], "check"),
        "Check",
        (0.0, 1.0),
    ),
    Chart(
        "Share of the commonest kind of answer",
        "How often a case was answered by its commonest kind of answer, with 95 % intervals. A case is collapsed whose "
        "interval lies above its limit, diverse below it; across it, more answers are needed.",
        "dots",
        "share",
        _shares,
        "Case",
        (0.0, 1.0),
    ),
    *LABEL_CHARTS,
    _pass_chart("pass_at"),
    _pass_chart("pass_hat"),
)


# Rows of the page: an output, and each of its checks.


class _CheckRow(msgspec.Struct):
    name: str = ""
    passed: bool | None = None
    wanted: str = ""
    found: str = ""
    error: str = ""
    checks: list[_CheckRow] = []


class _OutputRow(msgspec.Struct):
    record: str
    id: str | None = None
    repeat: int | None = None
    status: str = ""
    score: float | None = None
    reason: str | None = None
    checks: msgspec.Raw = msgspec.Raw(b"[]")
    labels: dict[str, bool] = {}


_checks = msgspec.json.Decoder(list[_CheckRow]).decode


def _row_reader(report: Mapping[str, Json]) -> Callable[[Any], Row | None]:
    return _row


def _row(line: _OutputRow) -> Row:
    state = state_of(line.status)
    identity = line.id or ""
    name = identity if line.repeat is None else f"{identity}#{line.repeat}"
    cells = (identity or None, line.repeat, line.score)
    return Row(line.record, name, line.status, state, line.reason or "", cells, lambda: tuple(_evidence(line)))


def _evidence(line: _OutputRow) -> Iterator[Evidence]:
    """The checks that an output fails, then those that it passes."""
    evidence = list(_check_evidence(_checks(line.checks), ""))
    for name, passed in line.labels.items():
        label = "people say that it passes" if passed else "people say that it fails"
        evidence.append(Evidence(f"{name} › people", "a label", label, passed))
    yield from sorted(evidence, key=lambda piece: piece.fine)
    if not evidence:
        yield Evidence("output", "an answer", line.reason or "")


def _check_evidence(checks: Sequence[_CheckRow], before: str) -> Iterator[Evidence]:
    for check in checks:
        name = f"{before}{check.name}"
        yield Evidence(name, check.wanted, check.error or check.found, check.passed is True)
        yield from _check_evidence(check.checks, f"{name} › ")


def _case_failed(entry: Json) -> bool:
    """Whether an entry in the report is of a case with an output that did not pass, or with a collapse."""
    if not isinstance(entry, dict):
        return False
    outputs = entry.get("outputs")
    lost = isinstance(outputs, dict) and outputs.get("failed", 0) + outputs.get("errors", 0) > 0
    return lost or entry.get("verdict") == "collapsed"


VIEWS = Views(
    METRICS,
    PANELS,
    markdown,
    notices,
    summary=page_summary,
    charts=_CHARTS,
    rows=Rows((Column("Case"), Column("Repeat", "number"), Column("Score", "number")), _OutputRow, _row_reader),
    at_times=("diversity", "first_token_seconds", "judges", "labels", "plain", "stopping"),
    failed=_case_failed,
)
