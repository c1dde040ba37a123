"""Build a page from a report: the evaluator's summary, charts and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.model.canonical import Json, canonical_json, longer_than
from evalq.evalcore.model.state import Omission, omissions_in
from evalq.evalcore.views.charts import (
    MOST_MARKS,
    Chart,
    Column,
    Evidence,
    FirstMarks,
    Mark,
    State,
    Summary,
    Tile,
    derived_charts,
    derived_summary,
)
from evalq.evalcore.views.markdown import LEFT_OUT
from evalq.evalcore.views.metrics import Unit
from evalq.producer.page.answers import ShownAnswer, ShownQuestion

# A page as plain data, without layout.


@dataclass(frozen=True)
class TileSection:
    """A handful of numbers."""

    title: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class ChartTable:
    """A chart with its rows.

    ``texts`` has the value and the interval of each mark, ``ends`` those of the axis, and ``limit`` a sentence on the
    line, where they are not numbers of ``unit``.
    """

    title: str
    caption: str
    kind: str
    unit: Unit
    label: str
    marks: tuple[Mark, ...]
    low: float
    high: float
    line: float | None = None
    texts: tuple[tuple[str, str], ...] = ()
    ends: tuple[str, str] | None = None
    limit: str = ""


@dataclass(frozen=True)
class ChartSection:
    """Charts, one below the other."""

    title: str
    charts: tuple[ChartTable, ...]


@dataclass(frozen=True)
class ProseSection:
    """Sentences."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TableSection:
    """A plain table; all cells are text."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class FailedRecord:
    """A record that failed or cannot be decided, with expected and actual values.

    ``address`` is that of its own page, if it has one.
    """

    record: str
    id: str
    status: str
    state: State
    reason: str
    evidence: tuple[Evidence, ...]
    question: ShownQuestion | None = None
    answer: ShownAnswer | None = None
    address: str = ""


@dataclass(frozen=True)
class FailedSection:
    """The first records that failed, readable without scripts; ``total`` says how many there are."""

    title: str
    total: int
    first: tuple[FailedRecord, ...]


Section = TileSection | ChartSection | ProseSection | TableSection | FailedSection


@dataclass
class Listing:
    """The content of the table of records: ``kept`` rows of ``total``.

    ``statuses`` counts all records by (status, state), ``explained`` counts failed ones with evidence. ``answers`` says
    whether rows end with the number of their answer.
    """

    columns: tuple[Column, ...] = ()
    total: int = 0
    kept: int = 0
    failed: int = 0
    explained: int = 0
    statuses: dict[tuple[str, State], int] = field(default_factory=dict)
    first: list[FailedRecord] = field(default_factory=list)
    answers: bool = False


@dataclass(frozen=True)
class ReportPage:
    """A page: what it is about, its headline, its sections, and the table of records, if any."""

    subject: str
    headline: str
    sentence: str
    state: State
    sections: tuple[Section, ...]
    notices: tuple[str, ...] = ()
    listing: Listing | None = None
    facts: tuple[tuple[str, str], ...] = ()
    params: str = ""


_FAULTS = 50
_EXAMPLES = 5
_PARAMS_BYTES = 256 << 10
_UNLISTED = (
    "Records are not listed here: this file was written with a run of very many, or where only the report is. "
    "The command evalq report RUN -o report.html writes it with them, where the run's folder is."
)


def build_page(
    evaluator: Evaluator[Any, Any],
    report: Mapping[str, Json],
    listing: Listing | None = None,
    first: Sequence[Section] = (),
    about: Sequence[str] = (),
    served: Sequence[tuple[str, str]] = (),
) -> ReportPage:
    """The page of a report (report.json's content), with the records in ``listing``, None without records.

    Sections in ``first`` stand before all others. The title has ``about``: target, prompt and date.
    ``served`` names the models that gave the answers of live calls, and who simulated their users.
    """
    views = evaluator.views
    summary = summary_of(evaluator, report)
    return ReportPage(
        subject=_subject(report, about),
        headline=summary.headline,
        sentence=" ".join(filter(None, (summary.sentence, _left_out(listing)))),
        state=summary.state,
        sections=(*first, *_sections(evaluator, report, summary, listing)),
        notices=tuple(views.notices(report)),
        listing=listing,
        facts=(*_facts(report), *served),
        params=_params(report["params"]),
    )


def summary_of(evaluator: Evaluator[Any, Any], report: Mapping[str, Json]) -> Summary:
    """An evaluator's summary, or the one derived of its metrics."""
    views = evaluator.views
    return views.summary(report) if views.summary else derived_summary(report, views.metrics, views.panels)


def _params(params: Json) -> str:
    if longer_than(params, _PARAMS_BYTES):
        return f"They are longer than {_PARAMS_BYTES >> 10} KiB: report.json has them."
    return msgspec.json.format(canonical_json(params), indent=2).decode()


def _sections(
    evaluator: Evaluator[Any, Any], report: Mapping[str, Json], summary: Summary, listing: Listing | None
) -> Iterator[Section]:
    views = evaluator.views
    if summary.tiles:
        yield TileSection("Summary", summary.tiles)
    if left_out := omissions_in(report):
        yield _omissions(left_out)
    charts = tuple(chart_tables(views.charts or derived_charts(views.metrics, views.panels), report))
    if charts:
        yield ChartSection("Charts", charts)
    if listing is None:
        yield ProseSection("Records", (_UNLISTED,))
    elif listing.failed:
        yield FailedSection("Failed records", listing.failed, tuple(listing.first))
    faults = report["faults"]
    if faults:
        rows = tuple((str(fault["where"]), str(fault["reason"])) for fault in faults[:_FAULTS])
        caption = f"The first {_FAULTS} of those in report.json." if len(faults) > _FAULTS else ""
        yield TableSection("Faults of the input", caption, ("Where", "Why"), rows)


def _omissions(left_out: Sequence[Omission]) -> TableSection:
    rows = tuple(
        (
            each.what,
            f"{each.count:,}",
            f"{each.why}; counted instead: {each.instead}" if each.instead else each.why,
            "; ".join(f"{one.where}: {one.text}" for one in each.examples[:_EXAMPLES]),
        )
        for each in left_out
    )
    caption = "No number below counts these. report.json has more examples."
    return TableSection(LEFT_OUT, caption, ("What", "Count", "Why", "For example"), rows)


def chart_tables(charts: Iterable[Chart], report: Mapping[str, Json]) -> Iterator[ChartTable]:
    """The charts that have values, with their rows."""
    for chart in charts:
        marks = chart.marks(report)
        marks = marks if isinstance(marks, FirstMarks) else tuple(marks)
        if any(mark.value is not None for mark in marks):
            line = chart.line(report)
            low, high = chart.range or _reach(marks, line, chart.kind != "dots")
            total, place = len(marks), "report.json"
            if isinstance(marks, FirstMarks):
                total, place = marks.total, "a file beside report.json"
            more = "" if total <= MOST_MARKS else f" The first {MOST_MARKS:,} of {total:,}; {place} has all."
            caption, rows = chart.caption + more, tuple(marks[:MOST_MARKS])
            yield ChartTable(chart.title, caption, chart.kind, chart.unit, chart.label, rows, low, high, line)


def _reach(marks: Iterable[Mark], line: float | None, zero: bool) -> tuple[float, float]:
    """From the lowest to the highest of all values, intervals and the limit; bars begin at zero."""
    ends = [end for mark in marks for end in (mark.value, mark.low, mark.high) if end is not None]
    ends += [0.0] if zero else []
    ends += [] if line is None else [line]
    return min(ends), max(ends)


def _subject(report: Mapping[str, Json], about: Sequence[str]) -> str:
    if len(about) > 1:
        return " · ".join((str(report["evaluator"]), *about))
    names = [str(given["name"]) for given in report["inputs"]]
    inputs = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return " · ".join((str(report["evaluator"]), inputs, *about))


def _left_out(listing: Listing | None) -> str:
    """Sentences on records that this page leaves out."""
    if listing is None:
        return ""
    sentences = []
    if missing := listing.total - listing.kept:
        sample = listing.kept - listing.failed
        sentences.append(
            f"Of {listing.total:,} records this page lists all {listing.failed:,} that failed or are undecided and a "
            f"sample of {sample:,} others; {missing:,} are left out, and all are in records.jsonl."
        )
    if missing := listing.failed - listing.explained:
        sentences.append(f"The expected and actual values of {missing:,} failed ones are in records.jsonl alone.")
    return " ".join(sentences)


def _facts(report: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    yield "Evaluator", f"{report['evaluator']}, version {report['evaluator_version']}"
    for given in report["inputs"]:
        yield "Input", f"{given['name']}: {given['records']:,} records, SHA-256 {given['sha256']}"
    counts = report["records"]
    yield "Records", ", ".join(f"{counts[key]:,} {key}" for key in ("total", "scored", "unscored", "errors", "dead"))
