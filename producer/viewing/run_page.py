"""The page of one run: what its report.html says, its first records, and while it goes how it stands."""

from __future__ import annotations

from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.producer.page import ALL_UP_TO, build_page
from evalq.producer.page.build import Listing
from evalq.producer.page.render import Block, Html, element, joined, page_banner, page_contents, title_of
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.frame import Answer, document, link
from evalq.producer.viewing.index_page import look_of, when
from evalq.producer.viewing.progress import Standing
from evalq.producer.viewing.records import RecordFilter, RecordPage, Records
from evalq.producer.viewing.records_page import asking, listed, records_of, section
from evalq.producer.viewing.viewer import Viewer

__all__ = ["run_page"]

_FIRST, _SECONDS = 20, 0.3
_SHOWN = 25
_ELSEWHERE = "The records of this run are not here, only its report: they are where its command computed it."


def run_page(viewer: Viewer, known: KnownRun) -> Answer:
    """All of a run on one page; of one without a report, how it stands."""
    standing = viewer.standings.of(known)
    report = viewer.report(known)
    if report is None:
        return _unreported(known, standing)
    evaluator = plugins.get(report["evaluator"])
    records = records_of(viewer, known, evaluator, report)
    listing, blocks = Listing(), []
    if records is None:
        blocks.append(Block("records", "Records", element("p", _ELSEWHERE)))
    else:
        failed = records.look(0, RecordFilter(failed=True), _FIRST, explain=True, seconds=_SECONDS)
        listing = _failed(failed, evaluator)
        blocks.append(
            Block("records", "Records", _first_records(known, evaluator, records, failed, report["records"]["total"]))
        )
    blocks.append(Block("place", "Where it is", _place(known, standing)))
    page = build_page(evaluator, report, listing)
    main = joined(None if standing.state == "done" else _standing(known, standing), page_contents(page, blocks))
    return document(title_of(page), page_banner(page, blocks), main)


def _failed(looked: RecordPage, evaluator: Evaluator[Any, Any]) -> Listing:
    first = [found.failed for found in looked.found if found.failed is not None]
    return Listing(evaluator.views.rows.columns, failed=len(first), explained=len(first), first=first)


def _first_records(
    known: KnownRun, evaluator: Evaluator[Any, Any], records: Records, failed: RecordPage, total: int
) -> Html:
    """The first rows of ``total``, and ways to the others."""
    looked = records.look(0, RecordFilter(), _SHOWN)
    links = [element("a", "All records", href=link("run", known.key, "records"))] if looked.more else []
    if failed.more:
        links.append(element("a", "All that failed", href=link("run", known.key, "records", show="failed")))
    if 1 < total <= ALL_UP_TO:
        links.append(element("a", "All in one table, to be sorted", href=link("run", known.key, "table")))
    return joined(
        asking(known, RecordFilter()),
        listed(known, evaluator, looked.found),
        element("p", *(joined(each, " ") for each in links), class_="turn") if links else None,
    )


def _unreported(known: KnownRun, standing: Standing) -> Answer:
    subject = " · ".join(filter(None, (known.evaluator, known.suite, known.target)))
    header = element(
        "header",
        element("p", subject, class_="subject", dir="auto"),
        element("h1", known.run, class_=look_of(standing.state), dir="auto"),
    )
    main = joined(_standing(known, standing), section("Where it is", _place(known, standing)))
    head = element("noscript", element("meta", http_equiv="refresh", content="5")) if standing.going else None
    return document(f"{known.run} · {standing.state}", header, main, head=head)


def _standing(known: KnownRun, standing: Standing) -> Html:
    """How a run that is not done stands; asked for again while it goes."""
    facts = [
        joined(element("dt", name), element("dd", value, data_fact=name, dir="auto")) for name, value in standing.facts
    ]
    bar = None
    if standing.share is not None:
        bar = element("progress", max="1", value=f"{standing.share:.4f}", aria_label="How far it is")
    said = " ".join(filter(None, (f"This run is {standing.state}: {standing.meaning or standing.then}.",)))
    return element(
        "section",
        element("h2", "Progress" if standing.going else "How it stands"),
        element("p", said, class_="lede"),
        element("p", standing.then) if standing.then and standing.meaning else None,
        bar,
        element("dl", *facts, class_="facts"),
        class_="going",
        data_run=known.key if standing.going else None,
    )


def _place(known: KnownRun, standing: Standing) -> Html:
    facts = [("Run", known.run), ("State", standing.state), ("Begun", when(known.started))]
    facts += [("Suite", known.suite)] if known.suite else []
    facts += [("Target", known.target)] if known.target else []
    facts += [("Tag", f"{key}={value}") for key, value in known.tags.items()]
    lineage = known.folder.info().lineage if known.folder and not known.trouble else None
    facts += [("Not its own", lineage.told())] if lineage else []
    facts.append(("Folder", str(known.folder.path) if known.folder else "elsewhere: this is what the ledger has"))
    if known.folder is not None and (known.folder.path / "report.html").is_file():
        facts.append(("To pass on", str(known.folder.path / "report.html")))
    rows = [joined(element("dt", name), element("dd", value, dir="auto")) for name, value in facts]
    suite = link("suite", evaluator=known.evaluator, suite=known.suite, target=known.target)
    history = element("p", element("a", "Its suite's history", href=suite)) if known.evaluator else None
    return joined(element("dl", *rows, class_="facts"), history)
