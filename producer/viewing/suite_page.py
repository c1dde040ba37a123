"""The history of a suite: its runs in order, what they found, and the verdict on each against every baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.views.charts import Mark, number
from evalq.evalcore.views.metrics import Metric, Unit
from evalq.producer.comparing.comparing import VERDICTS
from evalq.producer.page.build import ChartTable
from evalq.producer.page.render import Html, chart_figure, element, joined
from evalq.producer.viewing.compare_page import LOOKS, spoken
from evalq.producer.viewing.frame import Answer, document, link, table
from evalq.producer.viewing.history import Histories, PastRun, Suite, Went, suites_of
from evalq.producer.viewing.index_page import run_cell, when
from evalq.producer.viewing.sides import BASELINE
from evalq.producer.viewing.viewer import Query, Viewer, asked, number_of

__all__ = ["suite_page", "suites_page"]

_RUNS, _NUMBERS = 30, 6


def suites_page(viewer: Viewer) -> Answer:
    """Every suite that has a run."""
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
        for suite, count in sorted(suites_of(viewer).items())
    ]
    found = table("Suites", ("Suite", "Evaluator", "Target", "Runs here"), rows, numeric=("Runs here",))
    return document("Suites", header, found if rows else element("p", "No run has finished yet."), here="/suites")


def suite_page(histories: Histories, query: Query) -> Answer:
    """The runs of one suite, the newest first."""
    suite = Suite(asked(query, "evaluator"), asked(query, "suite"), asked(query, "target"))
    metrics = plugins.get(suite.evaluator).views.metrics
    runs, at = histories.past(suite), number_of(query, "at")
    shown, approved = runs[at : at + _RUNS], histories.approved(suite)
    found, left, many = histories.read(shown, approved)
    header = element(
        "header",
        element("p", " · ".join(filter(None, suite)), class_="subject", dir="auto"),
        element("h1", f"{suite.suite}: {len(runs):,} run{'' if len(runs) == 1 else 's'}", dir="auto"),
        element("p", _told(approved, left, many), class_="lede", dir="auto"),
    )
    rows = [(f"baseline {name}", run.run, histories.of_baseline(run)) for name, run in approved.items()]
    rows += [(past.run, when(past.when), found[past.run]) for past in shown if past.run in found]
    figures = list(_charts(rows))
    further = element("a", "Older runs →", href=link("suite", **suite._asdict(), at=at + _RUNS))
    drift = [element("li", line, dir="auto") for line in histories.drift(suite)]
    main = joined(
        _section("Drift", "drift", element("ul", *drift)) if drift else None,
        _section("Over time", "time", element("div", *figures, class_="charts")) if figures else None,
        _section(
            "Runs",
            "runs",
            _runs(metrics, shown, found, list(approved)),
            element("p", further, class_="turn") if at + _RUNS < len(runs) else None,
        ),
    )
    return document(f"{suite.suite} · {suite.evaluator}", header, main, here="/suites")


def _section(title: str, name: str, *inner: Html | None) -> Html:
    return element("section", element("h2", title, id=f"h-{name}"), *inner, aria_labelledby=f"h-{name}")


def _told(approved: Mapping[str, RunCases], left: int, many: int) -> str:
    said = ["No baseline is approved for it; evalq baseline set NAME RUN does that."]
    if approved:
        said = [f"Baselines: {', '.join(f'{name} (run {run.run})' for name, run in approved.items())}."]
    if left:
        said.append(f"How the cases of {left:,} runs went is still to be read: load this page again.")
    if many:
        said.append(
            f"{many:,} runs have too many records to be read for this page; evalq compare does it once for all."
        )
    return " ".join(said)


def _charts(rows: Sequence[tuple[str, str, Went]]) -> Iterator[Html]:
    """Of each measure the runs one below the other, the baselines first."""
    measures = {each.name: each for _, _, went in rows for each in went.measures}
    for name, measure in measures.items():
        marks = tuple(Mark(label, *went.levels[name], note=note) for label, note, went in rows if name in went.levels)
        if marks:
            unit: Unit = "share" if (measure.low, measure.high) == (0.0, 1.0) else "number"
            caption = "The mean over cases of each run, with its 95 % interval."
            yield chart_figure(ChartTable(spoken(name), caption, "dots", unit, "Run", marks, measure.low, measure.high))


def _runs(metrics: Sequence[Metric], shown: Sequence[PastRun], found: Mapping[str, Went], names: Sequence[str]) -> Html:
    entries = [past.entry for past in shown if past.entry is not None]
    numbers = [metric for metric in metrics if not metric.labels][:_NUMBERS] if entries else []
    titles = [metric.name.removeprefix("evalq_").partition("_")[2].replace("_", " ") for metric in numbers]
    heads = ("Run", *(f"Against {name}" for name in names), "When", "Records", *titles)
    rows = []
    for past in shown:
        values = {name: value for name, labels, value in past.entry.samples if not labels} if past.entry else {}
        went = found.get(past.run)
        records = went.records if went else past.entry.records["total"] if past.entry else None
        rows.append(
            element(
                "tr",
                run_cell(past.known) if past.known else element("th", past.run, scope="row", dir="auto"),
                *(_verdict(past, went, name) for name in names),
                element("td", when(past.when), class_="when"),
                element("td", f"{records:,}" if records is not None else "–", class_="n"),
                *(element("td", number(values.get(each.name), each.unit), class_="n") for each in numbers),
            )
        )
    return table("Runs of this suite", heads, rows, numeric=("Records", *titles), look="runs")


def _verdict(past: PastRun, went: Went | None, name: str) -> Html:
    """By the first measure, leading to all of them."""
    if went is None or past.known is None:
        return element("td", "–")
    if name not in went.verdicts:
        return element("td", "cannot be compared")
    found = went.verdicts[name]
    if found is None:
        return element("td", "it is this run")
    measure, verdict = found
    to = link("compare", base=BASELINE + name, cand=past.known.key)
    said = element("a", f"{spoken(measure)}: {VERDICTS[verdict]}", href=to)
    return element("td", element("span", said, class_=f"status {LOOKS[verdict]}"))
