"""The history of a suite: its runs in order, their results, and their verdicts against each baseline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from evalq.evalcore.compare.comparison import Verdict
from evalq.evalcore.compare.intervals import level_of
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.views.charts import Mark, number
from evalq.evalcore.views.markdown import plural
from evalq.evalcore.views.metrics import Metric, Unit
from evalq.producer.comparing.comparing import MARGIN, VERDICTS
from evalq.producer.comparing.drifting import drift_lines
from evalq.producer.page.build import ChartTable
from evalq.producer.page.render import Html, chart_figure, element, joined
from evalq.producer.page.words import word
from evalq.producer.viewing.catalogue import KnownRun
from evalq.producer.viewing.compare_page import LOOKS, measure_title
from evalq.producer.viewing.frame import PageAnswer, document, link, table
from evalq.producer.viewing.index_page import run_cell, when
from evalq.producer.viewing.viewer import BASELINE, NewestValues, Query, RunSides, Viewer, query_number, query_value

if TYPE_CHECKING:
    from evalq.workers.ledger.history import Entry


# The outcomes of a suite's runs. Memory holds only the values that a page shows.

_SECONDS = 2.0
"""Time to read cases; a page says how many runs are left, and has them when it is loaded again."""
_ENTRIES = 1_000


class SuiteKey(NamedTuple):
    """The suite whose runs are compared with each other."""

    evaluator: str
    suite: str
    target: str


class PastRun(NamedTuple):
    """A finished run of a suite: in a folder here, in the ledger's history, or both.

    ``when`` a run in a folder began, since folders do not have its end; else when it ended.
    """

    run: str
    when: str
    known: KnownRun | None
    entry: Entry | None


class RunOutcome(NamedTuple):
    """The outcome of a run: {measure: (mean, low, high)}, and {baseline: verdict by the first measure}."""

    run: str
    records: int
    measures: tuple[Measure, ...]
    levels: Mapping[str, tuple[float, float, float]]
    verdicts: Mapping[str, tuple[str, Verdict] | None]


class Histories:
    """The histories of suites. Thread-safe."""

    def __init__(self, viewer: Viewer, sides: RunSides) -> None:
        self._viewer = viewer
        self._sides = sides
        self._outcomes: NewestValues[RunOutcome] = NewestValues(5_000)

    def past(self, suite: SuiteKey) -> list[PastRun]:
        """Its runs, the newest first."""
        entries = {entry.run: entry for entry in self._viewer.ledger.entries(*suite, most=_ENTRIES)}
        runs = self._viewer.catalogue.runs()
        found = [
            PastRun(known.run, known.started, known, entries.pop(known.run, None))
            for known in runs
            if known.state == "done" and (known.evaluator, known.suite, known.target) == suite
        ]
        away = {known.run: known for known in runs if known.folder is None}
        for entry in entries.values():
            ended = datetime.fromtimestamp(entry.ended, UTC).isoformat()
            found.append(PastRun(entry.run, ended, away.get(entry.run), entry))
        return sorted(found, key=lambda each: (each.when, each.run), reverse=True)

    def approved(self, suite: SuiteKey) -> dict[str, RunCases]:
        """The baselines that runs of a suite are compared with."""
        found = {}
        for name, runs in self._sides.baselines().items():
            same = [run for run in runs if run.evaluator == suite.evaluator]
            if len(same) > 1:
                same = [run for run in same if run.target == suite.target]
            if same:
                found[name] = same[0]
        return found

    def drift(self, suite: SuiteKey) -> list[str]:
        """The drift of its runs as text; empty if no ledger has counted them."""
        return list(drift_lines(self._viewer.ledger.drift(*suite)))

    def read(self, runs: Sequence[PastRun], approved: Mapping[str, RunCases]) -> tuple[dict[str, RunOutcome], int, int]:
        """The outcomes of ``runs`` that can be read in time; and how many are left, and how many are too large."""
        until, left, many = time.monotonic() + _SECONDS, 0, 0
        found: dict[str, RunOutcome] = {}
        bases = tuple((name, base.run, base.report) for name, base in approved.items())
        for past in runs:
            if past.known is None:
                continue
            with contextlib.suppress(EvalqError, OSError):
                digest = past.entry.digest if past.entry else ""
                key = (past.known.key, self._sides.stamp(past.known), digest, bases)
                outcome = self._outcomes.get(key)
                if outcome is None and not self._sides.at_hand(past.known):
                    many += 1
                elif outcome is None and time.monotonic() > until:
                    left += 1
                else:
                    found[past.run] = outcome or self._outcomes.put(key, self._of(past.known, approved))
        return found, left, many

    def of_baseline(self, base: RunCases) -> RunOutcome:
        """The outcome of an approved run."""
        key = (base.run, base.report)
        return self._outcomes.get(key) or self._outcomes.put(key, _outcome(base, {}))

    def _of(self, known: KnownRun, approved: Mapping[str, RunCases]) -> RunOutcome:
        run = self._sides.cases(known)
        verdicts: dict[str, tuple[str, Verdict] | None] = {}
        for name, base in approved.items():
            if run.run == base.run and run.report == base.report:
                verdicts[name] = None
                continue
            with contextlib.suppress(UsageError):
                first = self._sides.compare(base, run, MARGIN)[0]
                verdicts[name] = (first.measure.name, first.verdict)
        return _outcome(run, verdicts)


def _outcome(run: RunCases, verdicts: Mapping[str, tuple[str, Verdict] | None]) -> RunOutcome:
    levels = {}
    for measure in run.cases.measures:
        if measure.name not in run.cases.columns:
            continue
        side = pairs_of(run.cases, run.cases, measure).base
        if len(side.answers):
            level = level_of(side, measure.low, measure.width)
            levels[measure.name] = (level.mean, *level.interval())
    return RunOutcome(run.run, run.records["total"], tuple(run.cases.measures), levels, verdicts)


def _suites_of(viewer: Viewer) -> dict[SuiteKey, int]:
    """Every suite that has a run, and the number of its runs here."""
    counts: dict[SuiteKey, int] = {}
    for known in viewer.catalogue.runs():
        if known.evaluator and known.state == "done":
            suite = SuiteKey(known.evaluator, known.suite, known.target)
            counts[suite] = counts.get(suite, 0) + 1
    for key in viewer.ledger.places():
        counts.setdefault(SuiteKey(key.evaluator, key.suite, key.target), 0)
    return counts


_SHOWN_RUNS, _NUMBERS = 30, 6


def suites_page(viewer: Viewer) -> PageAnswer:
    """Every suite that has a run."""
    header = element(
        "header",
        element("h1", "Suites"),
        element("p", "Runs of one evaluator, suite and target, to be compared with each other.", class_="lede"),
    )
    rows = [
        element(
            "tr",
            element(
                "th",
                element("a", suite.suite, href=link("suite", **suite._asdict()), dir="auto"),
                scope="row",
                dir="auto",
            ),
            element("td", suite.evaluator, dir="auto"),
            element("td", suite.target or "–", dir="auto"),
            element("td", f"{count:,}" if count else "in the ledger", class_="n"),
        )
        for suite, count in sorted(_suites_of(viewer).items())
    ]
    found = table("Suites", ("Suite", "Evaluator", "Target", "Runs here"), rows, numeric=("Runs here",))
    return document("Suites", header, found if rows else element("p", "No run has finished yet."), here="/suites")


def suite_page(histories: Histories, query: Query) -> PageAnswer:
    """The runs of one suite, the newest first."""
    suite = SuiteKey(query_value(query, "evaluator"), query_value(query, "suite"), query_value(query, "target"))
    metrics = plugins.get(suite.evaluator).views.metrics
    runs, at = histories.past(suite), query_number(query, "at")
    shown, approved = runs[at : at + _SHOWN_RUNS], histories.approved(suite)
    found, left, many = histories.read(shown, approved)
    header = element(
        "header",
        element("p", " · ".join(filter(None, suite)), class_="subject", dir="auto"),
        element("h1", f"{suite.suite}: {word(plural(len(runs), 'run'))}", dir="auto"),
        element("p", _lede(approved, left, many), class_="lede"),
    )
    rows = [(f"baseline {name}", run.run, histories.of_baseline(run)) for name, run in approved.items()]
    rows += [(past.run, when(past.when), found[past.run]) for past in shown if past.run in found]
    figures = list(_time_charts(rows))
    further = element("a", "Older runs →", href=link("suite", **suite._asdict(), at=at + _SHOWN_RUNS))
    drift = [element("li", line, dir="auto") for line in histories.drift(suite)]
    main = joined(
        _section("Drift", "drift", element("ul", *drift)) if drift else None,
        _section("Over time", "time", element("div", *figures, class_="charts")) if figures else None,
        _section(
            "Runs",
            "runs",
            _runs(metrics, shown, found, list(approved)),
            element("p", further, class_="turn") if at + _SHOWN_RUNS < len(runs) else None,
        ),
    )
    return document(f"{suite.suite} · {suite.evaluator}", header, main, here="/suites")


def _section(title: str, name: str, *inner: Html | None) -> Html:
    return element("section", element("h2", title, id=f"h-{name}"), *inner, aria_labelledby=f"h-{name}")


def _lede(approved: Mapping[str, RunCases], left: int, many: int) -> str:
    sentences = ["No baseline is approved for it; evalq baseline set NAME RUN does that."]
    if approved:
        sentences = [f"Baselines: {', '.join(f'{name} (run {run.run})' for name, run in approved.items())}."]
    if left:
        sentences.append(f"The cases of {left:,} runs are not read yet: load this page again.")
    if many:
        sentences.append(
            f"{many:,} runs have too many records for this page; evalq compare reads them once and keeps the result."
        )
    return " ".join(sentences)


def _time_charts(rows: Sequence[tuple[str, str, RunOutcome]]) -> Iterator[Html]:
    """A chart for each measure, with the baselines first, then the runs."""
    measures = {each.name: each for _, _, outcome in rows for each in outcome.measures}
    for name, measure in measures.items():
        marks = tuple(
            Mark(label, *outcome.levels[name], note=note) for label, note, outcome in rows if name in outcome.levels
        )
        if marks:
            unit: Unit = "share" if (measure.low, measure.high) == (0.0, 1.0) else "number"
            caption = "The mean over cases of each run, with its 95 % interval."
            yield chart_figure(
                ChartTable(measure_title(name), caption, "dots", unit, "Run", marks, measure.low, measure.high)
            )


def _runs(
    metrics: Sequence[Metric], shown: Sequence[PastRun], found: Mapping[str, RunOutcome], names: Sequence[str]
) -> Html:
    entries = [past.entry for past in shown if past.entry is not None]
    numbers = [metric for metric in metrics if not metric.labels][:_NUMBERS] if entries else []
    titles = [metric.name.removeprefix("evalq_").partition("_")[2].replace("_", " ") for metric in numbers]
    heads = ("Run", *(f"Against {name}" for name in names), "When", "Records", *titles)
    rows = []
    for past in shown:
        values = {name: value for name, labels, value in past.entry.samples if not labels} if past.entry else {}
        outcome = found.get(past.run)
        records = outcome.records if outcome else past.entry.records["total"] if past.entry else None
        rows.append(
            element(
                "tr",
                run_cell(past.known) if past.known else element("th", past.run, scope="row", dir="auto"),
                *(_verdict(past, outcome, name) for name in names),
                element("td", when(past.when), class_="when"),
                element("td", f"{records:,}" if records is not None else "–", class_="n"),
                *(element("td", number(values.get(each.name), each.unit), class_="n") for each in numbers),
            )
        )
    return table("Runs of this suite", heads, rows, numeric=("Records", *titles), look="runs")


def _verdict(past: PastRun, outcome: RunOutcome | None, name: str) -> Html:
    """The verdict by the first measure, linked to the comparison."""
    if outcome is None or past.known is None:
        return element("td", "–")
    if name not in outcome.verdicts:
        return element("td", "cannot be compared")
    found = outcome.verdicts[name]
    if found is None:
        return element("td", "it is this run")
    measure, verdict = found
    to = link("compare", base=BASELINE + name, cand=past.known.key)
    label = element("a", f"{measure_title(measure)}: {VERDICTS[verdict]}", href=to)
    return element("td", element("span", label, class_=f"status {LOOKS[verdict]}"))
