"""The page of one run: its report, its first records, and its progress while it goes."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.files import open_input
from evalq.producer.page import ALL_UP_TO, build_page
from evalq.producer.page.answers import RecordedAnswers, about, served_by
from evalq.producer.page.build import Listing
from evalq.producer.page.packing import brief, pack
from evalq.producer.page.render import (
    Block,
    Html,
    answer_block,
    element,
    evidence_table,
    joined,
    page_banner,
    page_contents,
    question_block,
    record_table,
    table_script,
    title_of,
)
from evalq.producer.page.words import word
from evalq.producer.viewing.case_page import NO_ANSWER, NO_QUESTION, answer_to, case_of, question_of_case, records_of
from evalq.producer.viewing.catalogue import KnownRun, RunProgress
from evalq.producer.viewing.frame import PageAnswer, document, link, refusal, table
from evalq.producer.viewing.index_page import run_title, state_style, when
from evalq.producer.viewing.records import ROWS, FoundRecord, RecordFilter, RecordPage, RecordReader, pretty
from evalq.producer.viewing.viewer import Query, Viewer, query_number, query_value

# Pages of records: some at a time, all in one table if there are not too many, and one record in detail.


def records_page(viewer: Viewer, known: KnownRun, query: Query) -> PageAnswer:
    """Some of a run's records, from a line on, filtered by a search."""
    report = viewer.report(known)
    evaluator = plugins.get(report["evaluator"]) if report else None
    records = records_of(viewer, known, evaluator, report) if evaluator and report else None
    if records is None or evaluator is None:
        return refusal(404, "No records here", "The records of this run are not here, or it has no report yet.")
    wanted = RecordFilter(query_value(query, "show") == "failed", query_value(query, "q"))
    first = max(0, query_number(query, "at") - 1)
    page = records.search(first, wanted)
    header = element("header", element("p", _run_link(known), class_="subject"), element("h1", "Records"))
    main = joined(
        _search_form(known, wanted, first), _listed(known, evaluator, page.found), _turning(known, wanted, first, page)
    )
    return document(f"Records · {known.run}", header, main)


def table_page(viewer: Viewer, known: KnownRun) -> PageAnswer:
    """All records of a run in the table of its report.html, which can be sorted and filtered."""
    report, path = viewer.report(known), viewer.path_of(known)
    if report is None or path is None:
        return refusal(404, "No records here", "The records of this run are not here, or it has no report yet.")
    # The page holds all rows of the table, which must not be too much for a browser.
    if report["records"]["total"] > ALL_UP_TO:
        return refusal(
            404, "Too many for one table", "evalq report RUN -o report.html makes one with a sample of them."
        )
    evaluator = plugins.get(report["evaluator"])
    blocks = io.BytesIO()
    with open_input(path) as stream:
        answers = RecordedAnswers(known.folder) if known.folder else None
        with contextlib.closing(answers) if answers else contextlib.nullcontext():
            listing = pack(stream, evaluator.views.rows, report, blocks, answers)
    header = element("header", element("p", _run_link(known), class_="subject"), element("h1", "Records"))
    main = joined(record_table(listing), Html(blocks.getvalue().decode()))
    return document(f"Records · {known.run}", header, main, script=table_script())


def _run_link(known: KnownRun) -> Html:
    return element("a", run_title(known), href=link("run", known.key), dir="auto")


def record_page(viewer: Viewer, known: KnownRun, query: Query) -> PageAnswer:
    """One record: expected and actual values, and its whole line."""
    report = viewer.report(known)
    evaluator = plugins.get(report["evaluator"]) if report else None
    records = records_of(viewer, known, evaluator, report) if evaluator and report else None
    number = max(0, query_number(query, "at") - 1)
    found = records.one(number) if records else None
    if found is None or evaluator is None:
        return refusal(404, "No such record", "The records of this run are not here, or fewer than that.")
    record, line = found
    answer, case = answer_to(viewer, known, record.record, line), case_of(evaluator, line)
    rows = element("a", "its records", href=link("run", known.key, "records", at=number - number % ROWS + 1))
    others = element("a", "all answers to this case", href=link("run", known.key, "case", id=case)) if case else None
    header = element(
        "header",
        element("p", _run_link(known), ", ", rows, ", " if others else None, others, class_="subject"),
        element("h1", record.id or record.record or f"Line {number + 1}", class_=record.state, dir="auto"),
        element("p", word(record.status), ": " if record.reason else "", record.reason, class_="lede", dir="auto"),
    )
    main = joined(
        _section("Question", question_block(question_of_case(known, case, (answer,)), NO_QUESTION)) if case else None,
        _section("Answer", answer_block(answer) if answer else element("p", NO_ANSWER, class_="caption")),
        _section("Expected and actual", evidence_table(record.evidence)) if record.evidence else None,
        _section(
            "As it was recorded",
            element("p", "Record ", element("code", record.record, dir="auto"), class_="caption"),
            element("pre", pretty(line), tabindex="0", aria_label="Its line of records.jsonl", role="region"),
        ),
    )
    return document(f"{record.id or record.record} · {known.run}", header, main)


def _section(title: str, *inner: Html | None) -> Html:
    """A part of a page with its heading."""
    return element("section", element("h2", title), *inner)


def _search_form(known: KnownRun, wanted: RecordFilter, first: int = 0) -> Html:
    """The form to search records."""
    search = element("input", type="search", name="q", value=wanted.text, autocomplete="off")
    options = [
        element("option", "All", value=""),
        element("option", "Failed or undecided", value="failed", selected=wanted.failed),
    ]
    return element(
        "form",
        element("label", "Search", search, class_="wide"),
        element("label", "Show", element("select", *options, name="show")),
        element("label", "From line", element("input", name="at", inputmode="numeric", value=first + 1)),
        element("button", "Show"),
        method="get", action=link("run", known.key, "records"), class_="asking", role="search",
    )  # fmt: skip


def _listed(known: KnownRun, evaluator: Evaluator[Any, Any], found: list[FoundRecord]) -> Html:
    """Records as a table, each with a link to its page."""
    if not found:
        return element("p", "No record matches in the lines searched.", class_="caption")
    columns = evaluator.views.rows.columns
    named = any(each.row.id for each in found)
    titles = ["Id" if named else "Record", "Status", *(column.title for column in columns), "Reason"]
    titles += ["Record"] if named else []
    numeric = [column.title for column in columns if column.kind != "text"]
    rows = [_row(known, evaluator, each, named) for each in found]
    return table("Records", titles, rows, numeric=numeric, look="rows")


def _row(known: KnownRun, evaluator: Evaluator[Any, Any], found: FoundRecord, named: bool) -> Html:
    row = found.row
    title = (row.id if named else row.record) or f"line {found.number + 1}"
    to = element("a", title, href=link("run", known.key, "record", at=found.number + 1), dir="auto")
    cells = [
        element("td", _cell(value, column.kind), class_=None if column.kind == "text" else "n", dir="auto")
        for value, column in zip(row.cells, evaluator.views.rows.columns, strict=False)
    ]
    return element(
        "tr",
        element("th", to, scope="row", dir="auto"),
        element("td", element("span", row.status, class_=f"status {row.state}")),
        *cells,
        element("td", row.reason or "–", class_="reason", dir="auto"),
        element("td", row.record, class_="place", dir="auto") if named else None,
    )


def _cell(value: object, kind: str) -> str:
    if value is None or value == "":
        return "–"
    if kind == "share" and isinstance(value, float | int):
        return f"{100 * value:.1f} %"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _turning(known: KnownRun, wanted: RecordFilter, first: int, page: RecordPage) -> Html:
    """The lines searched, and links to those before and after."""
    show = "failed" if wanted.failed else ""
    whole = f" of {page.total:,}" if page.total is not None else ""
    text = f"Lines {first + 1:,} to {page.end:,}{whole}" if page.end > first else f"There is no line {first + 1:,}"
    if not wanted.all:
        text = f"{len(page.found):,} found in lines {first + 1:,} to {page.end:,}{whole}"
    links = []
    if first > 0:
        before = max(0, first - ROWS) if wanted.all else 0
        label = "← Before" if wanted.all else "← From the beginning"
        links.append(
            element("a", label, href=link("run", known.key, "records", at=before + 1, show=show, q=wanted.text))
        )
    if page.more:
        label = "Further →" if wanted.all else "Look further →"
        to = link("run", known.key, "records", at=page.end + 1, show=show, q=wanted.text)
        links.append(element("a", label, href=to))
    return element("p", text, *links, class_="turn", role="status")


_FIRST, _SECONDS = 20, 0.3
_SHOWN = 25
_ELSEWHERE = "Only the report of this run is here; its records are where its command computed it."


def run_page(viewer: Viewer, known: KnownRun) -> PageAnswer:
    """A run on one page; without a report, its progress."""
    progress = viewer.standings.of(known)
    report = viewer.report(known)
    if report is None:
        return _progress_page(known, progress)
    evaluator = plugins.get(report["evaluator"])
    records = records_of(viewer, known, evaluator, report)
    listing, blocks = Listing(), []
    if records is None:
        blocks.append(Block("records", "Records", element("p", _ELSEWHERE)))
    else:
        failed = records.search(0, RecordFilter(failed=True), _FIRST, explain=True, seconds=_SECONDS)
        listing = _failed(viewer, known, failed, evaluator)
        blocks.append(
            Block("records", "Records", _first_records(known, evaluator, records, failed, report["records"]["total"]))
        )
    blocks.append(Block("place", "Where it is", _location(known, progress)))
    page = build_page(
        evaluator, report, listing, about=about(known.folder) if known.folder else (), served=served_by(known.folder)
    )

    def to(case: str) -> str:
        return link("run", known.key, "case", id=case)

    standing = None if progress.state == "done" else _progress_section(known, progress)
    main = joined(standing, page_contents(page, blocks, to))
    return document(title_of(page), page_banner(page, blocks), main)


def _failed(viewer: Viewer, known: KnownRun, page: RecordPage, evaluator: Evaluator[Any, Any]) -> Listing:
    first = []
    for found in page.found:
        if found.failed is not None:
            address = link("run", known.key, "record", at=found.number + 1)
            answer = answer_to(viewer, known, found.failed.record)
            question = question_of_case(known, answer.case) if answer and answer.case else None
            first.append(
                replace(found.failed, question=question, answer=brief(answer) if answer else None, address=address)
            )
    return Listing(evaluator.views.rows.columns, failed=len(first), explained=len(first), first=first)


def _first_records(
    known: KnownRun, evaluator: Evaluator[Any, Any], records: RecordReader, failed: RecordPage, total: int
) -> Html:
    """The first rows of ``total``, and links to the others."""
    page = records.search(0, RecordFilter(), _SHOWN)
    links = [element("a", "All records", href=link("run", known.key, "records"))] if page.more else []
    if failed.more:
        links.append(element("a", "All that failed", href=link("run", known.key, "records", show="failed")))
    if 1 < total <= ALL_UP_TO:
        links.append(element("a", "All in one table, to be sorted", href=link("run", known.key, "table")))
    return joined(
        _search_form(known, RecordFilter()),
        _listed(known, evaluator, page.found),
        element("p", *(joined(each, " ") for each in links), class_="turn") if links else None,
    )


def _progress_page(known: KnownRun, progress: RunProgress) -> PageAnswer:
    subject = " · ".join(filter(None, (known.evaluator, known.suite, known.target)))
    header = element(
        "header",
        element("p", subject, class_="subject", dir="auto"),
        element("h1", known.run, class_=state_style(progress.state), dir="auto"),
    )
    main = joined(_progress_section(known, progress), _section("Where it is", _location(known, progress)))
    head = element("noscript", element("meta", http_equiv="refresh", content="5")) if progress.going else None
    return document(f"{known.run} · {progress.state}", header, main, head=head)


def _progress_section(known: KnownRun, progress: RunProgress) -> Html:
    """The progress of an unfinished run; the page updates it while it goes."""
    facts = [
        joined(element("dt", name), element("dd", value, data_fact=name, dir="auto")) for name, value in progress.facts
    ]
    bar = None
    if progress.share is not None:
        bar = element("progress", max="1", value=f"{progress.share:.4f}", aria_label="How far it is")
    text = " ".join(filter(None, (f"This run is {progress.state}: {progress.meaning or progress.then}.",)))
    return element(
        "section",
        element("h2", "Progress" if progress.going else "Run state"),
        element("p", text, class_="lede"),
        element("p", progress.then) if progress.then and progress.meaning else None,
        bar,
        element("dl", *facts, class_="facts"),
        class_="going",
        data_run=known.key if progress.going else None,
    )


def _location(known: KnownRun, progress: RunProgress) -> Html:
    facts = [("Run", known.run), ("State", word(progress.state)), ("Begun", when(known.started))]
    facts += [("Suite", known.suite)] if known.suite else []
    facts += [("Target", known.target)] if known.target else []
    facts += [("Tag", f"{key}={value}") for key, value in known.tags.items()]
    lineage = known.folder.info().lineage if known.folder and not known.trouble else None
    facts += [("Not its own", lineage.sentence())] if lineage else []
    facts.append(
        ("Folder", str(known.folder.path) if known.folder else word("elsewhere; these facts are from the ledger"))
    )
    if known.folder is not None and (known.folder.path / "report.html").is_file():
        facts.append(("To pass on", str(known.folder.path / "report.html")))
    rows = [joined(element("dt", name), element("dd", value, dir="auto")) for name, value in facts]
    suite = link("suite", evaluator=known.evaluator, suite=known.suite, target=known.target)
    history = element("p", element("a", "Its suite's history", href=suite)) if known.evaluator else None
    return joined(element("dl", *rows, class_="facts"), history)
