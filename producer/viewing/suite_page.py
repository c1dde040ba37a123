"""The history of a suite: its runs in order, what they found, and the verdict on each against every baseline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.intervals import level_of
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.contract import registry
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.views.charts import Mark, number
from evalq.evalcore.views.metrics import Metric, Unit
from evalq.producer.comparing.comparing import MARGIN
from evalq.producer.comparing.text import VERDICTS
from evalq.producer.page.drawing import chart
from evalq.producer.page.markup import Html, element, joined
from evalq.producer.page.model import Drawn
from evalq.producer.viewing.catalogue import Known
from evalq.producer.viewing.compare_page import LOOKS, measure_name
from evalq.producer.viewing.frame import Answer, document, link
from evalq.producer.viewing.index_page import run_cell, when
from evalq.producer.viewing.sides import BASELINE, Sides
from evalq.producer.viewing.viewer import Query, Viewer, asked, number_of

if TYPE_CHECKING:
    from evalq.workers.ledger.history import Entry

__all__ = ["suite_page", "suites_page"]

_RUNS, _NUMBERS = 30, 6
_SECONDS = 2.0
"""Of reading how cases went; the page says what is left, and has it when it is loaded again."""


class _Suite(NamedTuple):
    evaluator: str
    suite: str
    target: str


class _Past(NamedTuple):
    """A finished run of a suite: in a folder here, in the ledger's history, or both."""

    run: str
    ended: str
    known: Known | None
    entry: Entry | None


def suites_page(viewer: Viewer) -> Answer:
    """Every suite that has a run."""
    counts: dict[_Suite, int] = {}
    for known in viewer.catalogue.runs():
        if known.evaluator and known.state == "done":
            suite = _Suite(known.evaluator, known.suite, known.target)
            counts[suite] = counts.get(suite, 0) + 1
    for place in viewer.ledger.places():
        counts.setdefault(_Suite(place.evaluator, place.suite, place.target), 0)
    header = element(
        "header",
        element("h1", "Suites"),
        element("p", "Runs of one evaluator, suite and target, to be compared with each other.", class_="lede"),
    )
    rows = [
        element(
            "tr",
            element("th", element("a", suite.suite, href=link("suite", **suite._asdict())), scope="row", dir="auto"),
            element("td", suite.evaluator, dir="auto"),
            element("td", suite.target or "–", dir="auto"),
            element("td", f"{count:,}" if count else "in the ledger", class_="n"),
        )
        for suite, count in sorted(counts.items())
    ]
    table = _table("Suites", ("Suite", "Evaluator", "Target", "Runs here"), rows, numeric=("Runs here",))
    return document("Suites", header, table if rows else element("p", "No run has finished yet."), here="/suites")


def suite_page(viewer: Viewer, sides: Sides, query: Query) -> Answer:
    """The runs of one suite, the newest first."""
    suite = _Suite(asked(query, "evaluator"), asked(query, "suite"), asked(query, "target"))
    evaluator = registry.get(suite.evaluator)
    runs = _past(viewer, suite)
    at = number_of(query, "at")
    shown = runs[at : at + _RUNS]
    cases, left, many = _cases(sides, shown)
    approved = _approved(sides, suite)
    header = element(
        "header",
        element("p", " · ".join(filter(None, suite)), class_="subject", dir="auto"),
        element("h1", f"{suite.suite}: {len(runs):,} runs"),
        element("p", _told(approved, left, many), class_="lede", dir="auto"),
    )
    further = element("a", "Older runs →", href=link("suite", **suite._asdict(), at=at + _RUNS))
    main = joined(
        _figures(shown, cases, approved),
        element(
            "section",
            element("h2", "Runs", id="h-runs"),
            _runs(sides, evaluator.views.metrics, shown, cases, approved),
            element("p", further, class_="turn") if at + _RUNS < len(runs) else None,
            aria_labelledby="h-runs",
        ),
    )
    return document(f"{suite.suite} · {suite.evaluator}", header, main, here="/suites")


def _told(approved: dict[str, RunCases], left: int, many: int) -> str:
    said = [f"Baselines: {', '.join(f'{name} (run {run.run})' for name, run in approved.items())}."] if approved else []
    if not approved:
        said.append("No baseline is approved for it; evalq baseline set NAME RUN does that.")
    if left:
        said.append(f"How the cases of {left:,} runs went is still to be read: load this page again.")
    if many:
        said.append(
            f"{many:,} runs have too many records to be read for this page; evalq compare does it once for all."
        )
    return " ".join(said)


def _past(viewer: Viewer, suite: _Suite) -> list[_Past]:
    entries = {entry.run: entry for entry in viewer.ledger.entries(*suite, most=1_000)}
    found = [
        _Past(known.run, known.started, known, entries.pop(known.run, None))
        for known in viewer.catalogue.runs()
        if known.state == "done" and (known.evaluator, known.suite, known.target) == suite
    ]
    away = {known.run: known for known in viewer.catalogue.runs() if known.folder is None}
    for entry in entries.values():
        ended = datetime.fromtimestamp(entry.ended, UTC).isoformat()
        found.append(_Past(entry.run, ended, away.get(entry.run), entry))
    return sorted(found, key=lambda each: (each.ended, each.run), reverse=True)


def _cases(sides: Sides, runs: Sequence[_Past]) -> tuple[dict[str, RunCases], int, int]:
    """How the cases of runs went, as far as that is read in a while; of how many it is left, and not read at all."""
    until, found, left, many = time.monotonic() + _SECONDS, {}, 0, 0
    for past in runs:
        if past.known is None:
            continue
        if not sides.at_hand(past.known):
            many += 1
            continue
        if time.monotonic() > until:
            left += 1
            continue
        with contextlib.suppress(EvalqError, OSError):
            found[past.run] = sides.cases(past.known)
    return found, left, many


def _approved(sides: Sides, suite: _Suite) -> dict[str, RunCases]:
    """The baselines that runs of a suite are compared with."""
    found = {}
    for name, runs in sides.baselines().items():
        same = [run for run in runs if run.evaluator == suite.evaluator]
        if len(same) > 1:
            same = [run for run in same if run.target == suite.target]
        if same:
            found[name] = same[0]
    return found


def _figures(shown: Sequence[_Past], cases: dict[str, RunCases], approved: dict[str, RunCases]) -> Html | None:
    """Of each measure the runs one below the other, the baselines first."""
    rows = [(f"baseline {name}", run.run, run) for name, run in approved.items()]
    rows += [(past.run, when(past.ended), cases[past.run]) for past in shown if past.run in cases]
    figures = list(_charts(rows))
    if not figures:
        return None
    return element(
        "section", element("h2", "Over time", id="h-time"), element("div", *figures, class_="charts"),
        aria_labelledby="h-time",
    )  # fmt: skip


def _charts(rows: Sequence[tuple[str, str, RunCases]]) -> Iterator[Html]:
    measures = {each.name: each for _, _, run in rows for each in run.cases.measures}
    for name, measure in measures.items():
        marks = []
        for label, note, run in rows:
            side = pairs_of(run.cases, run.cases, measure).base if name in run.cases.columns else None
            if side is None or not len(side.answers):
                continue
            level = level_of(side, measure.low, measure.width)
            low, high = level.interval()
            marks.append(Mark(label, level.mean, low, high, note=note))
        if marks:
            unit: Unit = "share" if (measure.low, measure.high) == (0.0, 1.0) else "number"
            caption = "The mean over cases of each run, with its 95 % interval."
            title = name.replace("_", " ").capitalize()
            yield chart(Drawn(title, caption, "dots", unit, "Run", tuple(marks), measure.low, measure.high))


def _runs(
    sides: Sides,
    metrics: Sequence[Metric],
    shown: Sequence[_Past],
    cases: dict[str, RunCases],
    approved: dict[str, RunCases],
) -> Html:
    entries = [past.entry for past in shown if past.entry is not None]
    numbers = [metric for metric in metrics if not metric.labels][:_NUMBERS] if entries else []
    titles = [metric.name.removeprefix("evalq_").partition("_")[2].replace("_", " ") for metric in numbers]
    heads = ("Run", *(f"Against {name}" for name in approved), "Ended", "Records", *titles)
    rows = []
    for past in shown:
        values = {name: value for name, labels, value in past.entry.samples if not labels} if past.entry else {}
        records = past.entry.records["total"] if past.entry else None
        if records is None and past.run in cases:
            records = cases[past.run].records["total"]
        rows.append(
            element(
                "tr",
                run_cell(past.known) if past.known else element("th", past.run, scope="row", dir="auto"),
                *(_verdict(sides, past, cases, name, base) for name, base in approved.items()),
                element("td", when(past.ended), class_="when"),
                element("td", f"{records:,}" if records is not None else "–", class_="n"),
                *(element("td", number(values.get(each.name), each.unit), class_="n") for each in numbers),
            )
        )
    return _table("Runs of this suite", heads, rows, numeric=("Records", *titles))


def _verdict(sides: Sides, past: _Past, cases: dict[str, RunCases], name: str, base: RunCases) -> Html:
    """By the first measure, leading to all of them."""
    if past.run not in cases or past.known is None:
        return element("td", "–")
    if past.run == base.run and cases[past.run].report == base.report:
        return element("td", "it is this run")
    try:
        found = sides.compare(base, cases[past.run], MARGIN)[0]
    except EvalqError:
        return element("td", "cannot be compared")
    to = link("compare", base=BASELINE + name, cand=past.known.key)
    said = element("a", f"{measure_name(found)}: {VERDICTS[found.verdict]}", href=to)
    return element("td", element("span", said, class_=f"status {LOOKS[found.verdict]}"))


def _table(caption: str, heads: Sequence[str], rows: Sequence[Html], numeric: Sequence[str] = ()) -> Html:
    cells = [element("th", head, scope="col", class_="n" if head in numeric else None) for head in heads]
    body = joined(
        element("caption", caption, class_="unseen"), element("thead", element("tr", *cells)), element("tbody", *rows)
    )
    table = element("table", body, class_="plain")
    return element("div", table, class_="scroll runs", tabindex="0", role="group", aria_label=caption)
