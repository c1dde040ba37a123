"""Charts and rows: what report.html draws, and how records become its table."""

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
"""By so much a mean of floats may miss the end of a scale."""
_WORDS: Mapping[Unit, str] = {"seconds": " s", "bits": " bits"}


class Tile(msgspec.Struct, frozen=True):
    """A number of the summary, in words already: ``note`` stands below it, such as its interval."""

    label: str
    value: str
    note: str = ""
    state: State = "none"


class Summary(msgspec.Struct, frozen=True):
    """What a reader learns first: a headline of few words, a sentence below it, and a handful of numbers."""

    headline: str
    sentence: str = ""
    state: State = "none"
    tiles: tuple[Tile, ...] = ()


class Mark(msgspec.Struct, frozen=True):
    """A row of a chart, or with ``part`` a piece of one: rows of the same label are stacked.

    ``low`` and ``high`` are the ends of an interval around ``value``; ``note`` is shown beside the number.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    state: State = "none"
    part: str = ""
    note: str = ""


def _no_line(report: Mapping[str, Json]) -> float | None:
    return None


class Chart(msgspec.Struct, frozen=True):
    """One chart. ``kind``: bars (from zero), dots (a value in its interval) or stacked (parts of a whole).

    ``marks`` reads the rows from report.json's content; a chart without any is left out. ``label`` says what a row is.
    ``range`` is where values lie, where that is known beforehand; ``line`` is a limit to draw across all rows.
    ``caption`` is a sentence: what is shown, and what an interval means.
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
    """What is wrong with an evaluator's charts over a report of its own, a sentence each; nothing when all is well."""
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
    """A row for each count, the highest first, and equal ones by name."""
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield Mark(name, count)


def number(value: float | None, unit: Unit) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if unit == "share":
        return f"{100 * value:.1f} %"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:,.3g}" + _WORDS.get(unit, "") if abs(value) < 1000 else f"{value:,.0f}" + _WORDS.get(unit, "")


def interval_text(low: float | None, high: float | None) -> str:
    """The 95 % interval of a rate; empty where there is none."""
    return "" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def rate_interval(part: int, of: int) -> str:
    """The 95 % interval (Wilson) of the rate ``part / of``; empty where there is no rate."""
    return interval_text(*wilson(part, of)) if of else ""


def of_all(records: Mapping[str, int]) -> str:
    """How many records a rate is over, where that is not all of them: a rate of 100 % may be that of one of four."""
    lacking = records["total"] - records["scored"]
    if not lacking or not records["scored"]:
        return ""
    return f"of the {records['scored']:,} of {records['total']:,} records that have a result"


def of_answered(*counts: tuple[int, int, str]) -> str:
    """Which part a rate is over, of each (answered, all, what) that is not whole: "of the 1 of 4 cases answered"."""
    parts = [f"the {answered:,} of {of:,} {what}" for answered, of, what in counts if 0 < answered < of]
    return f"of {' and '.join(parts)}" if parts else ""


def without_result(records: Mapping[str, int]) -> str:
    """A sentence on the records that no rate is over; empty without any."""
    lacking = records["total"] - records["scored"]
    return f"{lacking:,} of them have no result, and are no part of any rate." if lacking else ""


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
    """The summary of an evaluator that declares none: records that have a result, and its metrics without labels."""
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


# Records as the rows of a report's page: a few columns each, and of failed ones what was expected beside what came.

Cell = str | float | int | None
"""What a table can sort: a text, a number, or nothing."""

_STATES: Mapping[str, State] = {
    "passed": "good",
    "failed": "bad",
    "error": "bad",
    "dead": "bad",
    "undecided": "doubtful",
    "inconclusive": "doubtful",
}


def state_of(status: str) -> State:
    """The state of a record with this ``status``, in capitals or not; "none" for a status without a verdict."""
    return _STATES.get(status.lower(), "none")


class Column(msgspec.Struct, frozen=True):
    """A column besides those that every table has (record, id, status and reason)."""

    title: str
    kind: Literal["text", "number", "share"] = "text"


class Evidence(msgspec.Struct, frozen=True):
    """One thing that was asked of a record: what it is, what was expected, what came, and whether that is ``fine``."""

    what: str
    expected: str
    came: str
    fine: bool = False


def _no_evidence() -> tuple[Evidence, ...]:
    return ()


class Row(msgspec.Struct, frozen=True, gc=False):
    """A record: its place in the input, its id, its status in a word, and a cell for each column.

    What failed (state "bad") or cannot be decided ("doubtful") always has a row. ``evidence`` is called for those
    alone.
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

    ``line`` is what a line is decoded as: a type with only the keys that are read makes a page fast. ``reader`` is
    given report.json's content and returns what makes such a line a row, or None for a line about no record.
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
    """All that is known of a record whose evaluator does not say what it expected."""
    for key, value in line.items():
        if key not in ("record", "id", "status"):
            yield Evidence(key, "", value if isinstance(value, str) else canonical_json(value).decode())


generic_rows = Rows((), dict[str, Any], _generic_reader)
"""Of an evaluator that declares none: status and reason, and of failed records all keys of their line."""


def row_faults(rows: Rows, report: Mapping[str, Json], lines: list[bytes]) -> Iterator[str]:
    """What is wrong with an evaluator's rows over records of its own, a sentence each; nothing when all is well."""
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
