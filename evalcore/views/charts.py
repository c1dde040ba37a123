"""The parts of report.html that an evaluator declares: its summary, its charts, and the rows of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.metrics import Metric, Panel, Threshold, Unit

State = Literal["good", "doubtful", "bad", "none"]

_TILES = 8
_HAIR = 1e-9
"""The tolerance for means of floats at the ends of a scale."""
_WORDS: Mapping[Unit, str] = {"seconds": " s", "bits": " bits"}


class Tile(msgspec.Struct, frozen=True):
    """A number of the summary, formatted as text; ``note`` is shown below it, for example its interval."""

    label: str
    value: str
    note: str = ""
    state: State = "none"


class Summary(msgspec.Struct, frozen=True):
    """The top of a report: a headline of a few words, a sentence below it, and up to eight numbers."""

    headline: str
    sentence: str = ""
    state: State = "none"
    tiles: tuple[Tile, ...] = ()


class Mark(msgspec.Struct, frozen=True):
    """A row of a chart. In a stacked chart it is one ``part`` of a row: marks with the same label are stacked.

    ``low`` and ``high`` are the bounds of an interval around ``value``; ``note`` is shown beside the number.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    state: State = "none"
    part: str = ""
    note: str = ""


class FirstMarks(list[Mark]):
    """The first rows of a chart that has ``total``: a page shows no more than MOST_MARKS."""

    total = 0


MOST_MARKS = 1_000
"""Rows of a chart, at most: browsers take seconds for more."""


def _no_line(report: Mapping[str, Json]) -> float | None:
    return None


class Chart(msgspec.Struct, frozen=True):
    """One chart. ``kind``: bars (from zero), dots (a value in its interval) or stacked (parts of a whole).

    ``marks`` makes the rows from report.json's content; a chart without rows is left out. ``label`` names what a row
    is, such as "Check". ``range`` is the range of all possible values, if there is one. ``line`` gives a limit to draw
    across all rows, or None. ``caption`` is a sentence that says what the chart shows and what its interval means.
    """

    title: str
    caption: str
    kind: Literal["bars", "dots", "stacked"]
    unit: Unit
    marks: Callable[[Mapping[str, Json]], Iterable[Mark]]
    label: str
    range: tuple[float, float] | None = None
    line: Callable[[Mapping[str, Json]], float | None] = _no_line


def chart_faults(charts: Iterable[Chart], report: Mapping[str, Json]) -> Iterator[str]:
    """The faults of an evaluator's charts for one of its reports, one sentence each; empty if there are none."""
    titles: set[str] = set()
    for chart in charts:
        if not (chart.title and chart.caption and chart.label):
            yield f"chart {chart.title!r}: it needs a title, a caption and a label"
        if chart.title in titles:
            yield f"chart {chart.title!r} is declared twice"
        titles.add(chart.title)
        for mark in chart.marks(report):
            yield from (f"chart {chart.title!r}, {mark.label!r}: {fault}" for fault in _mark_faults(chart, mark))


def _mark_faults(chart: Chart, mark: Mark) -> Iterator[str]:
    if mark.value is None:
        return
    if (mark.low is None) != (mark.high is None):
        yield "an interval has two ends"
    if mark.low is not None and mark.high is not None and not mark.low - _HAIR <= mark.value <= mark.high + _HAIR:
        yield f"{mark.value} is not within its interval"
    if chart.range and not chart.range[0] - _HAIR <= mark.value <= chart.range[1] + _HAIR:
        yield f"{mark.value} is outside the range"
    if bool(mark.part) != (chart.kind == "stacked"):
        yield "parts go with stacked charts, and only with them"


def highest_first(counts: Mapping[str, int]) -> Iterator[Mark]:
    """A mark for each count, the highest first, equal counts by name."""
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield Mark(name, count)


def number(value: float | None, unit: Unit) -> str:
    """A value as text: shares as percent with one decimal, counts with separators, others with three digits."""
    if value is None:
        return "–"
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:,.3g}" + _WORDS.get(unit, "") if abs(value) < 1000 else f"{value:,.0f}" + _WORDS.get(unit, "")


def interval_text(low: float | None, high: float | None) -> str:
    """The 95 % interval of a rate as text, given as shares; "" without bounds."""
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def rate_interval(part: int, of: int) -> str:
    """Wilson's 95 % interval of the rate ``part / of`` as text; "" if ``of`` is 0."""
    return interval_text(*wilson(part, of)) if of else ""


def of_all(records: Mapping[str, int]) -> str:
    """A note on how many records a rate is over, such as "of the 1 of 4 records ..."; "" if it is over all of them."""
    lacking = records["total"] - records["scored"]
    if not lacking or not records["scored"]:
        return ""
    return f"of the {records['scored']:,} of {records['total']:,} records that have a result"


def of_answered(*counts: tuple[int, int, str]) -> str:
    """A note for each (answered, all, what) of which a rate covers only a part: "of the 1 of 4 cases answered"."""
    parts = [f"the {answered:,} of {of:,} {what}" for answered, of, what in counts if 0 < answered < of]
    return f"of {' and '.join(parts)}" if parts else ""


def without_result(records: Mapping[str, int]) -> str:
    """A sentence on the records without a verdict, whose number is in the headline; "" if there are none."""
    return "Rates leave out what has no verdict." if records["total"] > records["scored"] else ""


def passed_headline(passed: int, judged: int, verb: str, noun: str, without: Mapping[str, int]) -> str:
    """How many of the judged outputs passed, and how many have no verdict, by reason: "1 of 2 judged outputs passed; 3
    without a verdict (errors)". What has no verdict is part of no number before it, so that 100 errors of 100 outputs
    do not look like a pass rate of 0 %. ``noun`` is a plural, ``verb`` what a good one does.
    """
    left = {reason: count for reason, count in without.items() if count}
    if not left:
        return f"{passed:,} of {judged:,} {noun} {verb}" if judged else f"There are no {noun} to judge"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left.items()) if len(left) > 1 else next(iter(left))
    return f"{passed:,} of {judged:,} judged {noun} {verb}; {sum(left.values()):,} without a verdict ({reasons})"


def without_verdict(records: Mapping[str, int]) -> dict[str, int]:
    """{reason: number} of the records without a result, for `passed_headline`."""
    return {
        "errors": records["errors"],
        "without a score": records["unscored"],
        "killed their process": records["dead"],
    }


def derived_charts(metrics: Sequence[Metric], panels: Sequence[Panel]) -> tuple[Chart, ...]:
    """Charts for an evaluator that declares none: bars for every metric that has labels."""
    return tuple(_derived(metric, _panel_of(metric, panels)) for metric in metrics if metric.labels)


def _panel_of(metric: Metric, panels: Sequence[Panel]) -> Panel | None:
    return next((panel for panel in panels if any(plot.metric == metric.name for plot in panel.plots)), None)


def _derived(metric: Metric, panel: Panel | None) -> Chart:
    thresholds = panel.thresholds if panel else ()

    def marks(report: Mapping[str, Json]) -> Iterator[Mark]:
        names = {value: text for text, value in metric.states}
        for sample in metric.samples(report):
            note = names.get(sample.value, "").replace("_", " ")
            yield Mark(" · ".join(sample.labels), sample.value, state=_state(sample.value, thresholds), note=note)

    label = " and ".join(metric.labels).capitalize()
    return Chart(_title(metric), metric.help, "bars", metric.unit, marks, label)


def _title(metric: Metric) -> str:
    words = metric.name.removeprefix("evalq_").partition("_")[2]
    return words.replace("_", " ").capitalize()


def _state(value: float, thresholds: Sequence[Threshold]) -> State:
    state: State = "none"
    for threshold in thresholds:
        if threshold.value is None or value >= threshold.value:
            state = threshold.state
    return state


def derived_summary(report: Mapping[str, Any], metrics: Sequence[Metric], panels: Sequence[Panel]) -> Summary:
    """A summary for an evaluator that declares none: how many records have a result, and its metrics without labels."""
    counts = report["records"]
    left = [f"{counts[key]:,} {key}" for key in ("unscored", "errors", "dead") if counts[key]]
    tiles: list[Tile] = []
    for metric in metrics:
        if metric.labels or len(tiles) == _TILES:
            continue
        panel, names = _panel_of(metric, panels), {value: text for text, value in metric.states}
        for sample in metric.samples(report):
            shown = names.get(sample.value, number(sample.value, metric.unit)).replace("_", " ")
            state = _state(sample.value, panel.thresholds if panel else ())
            tiles.append(Tile(_title(metric), shown, state=state))
    headline = f"{counts['scored']:,} of {counts['total']:,} records have a result"
    return Summary(headline, ", ".join(left).capitalize(), tiles=tuple(tiles))


# Records as rows of the report's table: a few columns each, and for failed ones the expected and the actual value.

Cell = str | float | int | None
"""A table's cell, which can be sorted."""

_STATES: Mapping[str, State] = {
    "passed": "good",
    "failed": "bad",
    "error": "bad",
    "dead": "bad",
    "undecided": "doubtful",
    "inconclusive": "doubtful",
}


def state_of(status: str) -> State:
    """The state for a record's ``status``, in upper or lower case; "none" for a status without a verdict."""
    return _STATES.get(status.lower(), "none")


class Column(msgspec.Struct, frozen=True):
    """A column in addition to those of every table, which are record, id, status and reason."""

    title: str
    kind: Literal["text", "number", "share"] = "text"


class Evidence(msgspec.Struct, frozen=True):
    """One check of a record: its name, the expected value, the actual value (``came``), and whether it passed."""

    what: str
    expected: str
    came: str
    fine: bool = False


def _no_evidence() -> tuple[Evidence, ...]:
    return ()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A record: its location in the input ("<source>:<line>"), its id, its status in one word, and a cell per column.

    Records in the states "bad" (failed) and "doubtful" (undecided) always have a row. The report calls ``evidence``
    only for these.
    """

    record: str
    id: str
    status: str
    state: State
    reason: str = ""
    cells: tuple[Cell, ...] = ()
    evidence: Callable[[], tuple[Evidence, ...]] = _no_evidence


class Rows(msgspec.Struct, frozen=True):
    """How records.jsonl becomes a table.

    ``line`` is the type that each line is decoded to; a struct with only the keys in use makes a page fast.
    ``reader`` gets report.json's content and returns a function from a decoded line to a row, or to None for a line
    that is not about a record.
    """

    columns: tuple[Column, ...]
    line: Any
    reader: Callable[[Mapping[str, Json]], Callable[[Any], Row | None]]


def _generic_reader(report: Mapping[str, Json]) -> Callable[[Any], Row | None]:
    return _generic


def _generic(line: Mapping[str, Any]) -> Row | None:
    status = str(line.get("status", "")).lower()
    reason = line.get("reason") or line.get("issue") or ""
    return Row(
        str(line.get("record", "")),
        str(line.get("id") or ""),
        status,
        state_of(status),
        str(reason),
        evidence=lambda: tuple(_everything(line)),
    )


def _everything(line: Mapping[str, Any]) -> Iterator[Evidence]:
    """The whole line of a record as evidence, for an evaluator that declares no rows."""
    for key, value in line.items():
        if key not in ("record", "id", "status"):
            yield Evidence(key, "", value if isinstance(value, str) else canonical_json(value).decode())


generic_rows = Rows((), dict[str, Any], _generic_reader)
"""Rows for an evaluator that declares none: status and reason, and for failed records all keys of their line."""


def row_faults(rows: Rows, report: Mapping[str, Json], lines: list[bytes]) -> Iterator[str]:
    """The faults of an evaluator's rows for lines of records.jsonl, one sentence each; empty if there are none."""
    see = rows.reader(report)
    for data in lines:
        row = see(msgspec.json.decode(data, type=rows.line))
        if row is None:
            continue
        where = f"row of {row.record!r}"
        if len(row.cells) != len(rows.columns):
            yield f"{where}: {len(row.cells)} cells for {len(rows.columns)} columns"
        if row.state in ("bad", "doubtful") and not (row.reason or row.evidence()):
            yield f"{where}: it {row.status}, and nothing says why"
