"""The views of a verification report: metrics, panels, the page's summary and charts, Markdown, and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from evalq.evalcore.contract.claims import effectiveness_table, judged_evidence, judged_section, judged_tiles
from evalq.evalcore.contract.evaluator import Views
from evalq.evalcore.evaluators.verification.score import BANDS, COMPONENTS
from evalq.evalcore.model.canonical import Json
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
    number,
    of_all,
    passed_headline,
    rate_interval,
    state_of,
    without_result,
    without_verdict,
)
from evalq.evalcore.views.markdown import decimals, escape, failed_table, fault_table, left_out, percent, table
from evalq.evalcore.views.metrics import Metric, Panel, Plot, Threshold

_METRICS = (
    Metric(
        "evalq_verification_mean_score", "Mean verification score of transcripts.", "share", "mean_score", recent=10
    ),
    Metric(
        "evalq_verification_pass_rate",
        "Transcripts whose score reaches the threshold.",
        "share",
        "pass_rate",
        recent=10,
    ),
    Metric("evalq_verification_passed", "Transcripts whose score reaches the threshold.", "count", "passed"),
    Metric(
        "evalq_verification_component_score",
        "Mean of a component of the score.",
        "share",
        "components.{component}",
        ("component",),
    ),
    Metric(
        "evalq_verification_band_records", "Transcripts in a band of the score.", "count", "bands.{band}", ("band",)
    ),
    Metric(
        "evalq_verification_unsubstantiated",
        "Transcripts with a claim that nothing substantiates.",
        "count",
        "unsubstantiated",
    ),
    Metric(
        "evalq_verification_pattern_agreement",
        "Labelled transcripts that a set of patterns judges as the label does.",
        "share",
        "labels.patterns.{patterns}.share",
        ("patterns",),
    ),
)


_SCORE = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.9, "good"))

_PANELS = (
    Panel(
        "Verified work",
        "Mean verification score of transcripts, newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_verification_mean_score", ("suite",), legend="{suite}"),),
        _SCORE,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Score and pass rate over time",
        "Mean score, and share of transcripts that reach the threshold.",
        "share",
        "lines",
        (
            Plot("evalq_verification_mean_score", ("suite",), legend="{suite} score"),
            Plot("evalq_verification_pass_rate", ("suite",), legend="{suite} passed"),
        ),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "Score of the last 10 runs",
        "Mean score, and share of transcripts that reach the threshold, the newest run at 1.",
        "share",
        "bars",
        (
            Plot("evalq_verification_mean_score", ("suite",), recent=True, legend="{suite} score"),
            Plot("evalq_verification_pass_rate", ("suite",), recent=True, legend="{suite} passed"),
        ),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "By component",
        "Mean of each component: where verification falls short.",
        "share",
        "bars",
        (Plot("evalq_verification_component_score", ("component",), legend="{component}"),),
        _SCORE,
        (0, 1),
        width=12,
    ),
    Panel(
        "Bands",
        "How many transcripts of the newest run fall into each band of the score.",
        "count",
        "bars",
        (Plot("evalq_verification_band_records", ("band",), "sum", legend="{band}"),),
        width=12,
    ),
    Panel(
        "Transcripts",
        "Passed ones, and ones with a claim that nothing substantiates.",
        "count",
        "stat",
        (
            Plot("evalq_verification_passed", (), "sum", legend="passed"),
            Plot("evalq_verification_unsubstantiated", (), "sum", legend="with unsubstantiated claims"),
        ),
        width=12,
    ),
    Panel(
        "Agreement with labels",
        "Where transcripts are labelled: how often each set of patterns is right.",
        "share",
        "bars",
        (Plot("evalq_verification_pattern_agreement", ("patterns",), legend="{patterns}"),),
        _SCORE,
        (0, 1),
        width=12,
    ),
)


_BAND_STATES: Mapping[str, State] = {"perfect": "good", "good": "good", "moderate": "doubtful", "poor": "bad"}


def page_summary(report: Mapping[str, Json]) -> Summary:
    """How many transcripts comply, and how far."""
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: State = "none" if scored == records["total"] else "doubtful"
    over = of_all(records) or rate_interval(passed, scored)
    least = f"passes from {number(_threshold(report), 'points')}"
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), over, state),
        Tile("Mean score", number(results["mean_score"], "points"), least),
        Tile("Unsubstantiated", number(results["unsubstantiated"], "count"), "records with such a claim"),
        *judged_tiles(results),
    ]
    if records["errors"]:
        tiles.append(Tile("Broken", number(records["errors"], "count"), state="doubtful"))
    if "labels" in results:
        agreed = number(results["labels"]["agreement"]["share"], "share")
        tiles.append(Tile("Pattern sets agree", agreed, f"of {results['labels']['records']:,} labelled"))
    headline = passed_headline(passed, scored, "comply", "transcripts", without_verdict(records))
    return Summary(headline, without_result(records), "none" if scored else "doubtful", tuple(tiles))


def _threshold(report: Mapping[str, Json]) -> float:
    params = report["params"]
    return 1.0 if params["strict"] else float(params["threshold"])


def _component_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    for name in COMPONENTS:
        yield Mark(name.replace("_", " "), report["results"]["components"][name])


def _band_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    for band in BANDS:
        records = report["results"]["bands"][band]
        yield Mark(band, records, state=_BAND_STATES[band])


def _label_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    labels = report["results"].get("labels")
    for name, agreed in labels["patterns"].items() if labels else ():
        low, high = wilson(agreed["right"], labels["records"])
        yield Mark(name, agreed["share"], low, high, note=f"{agreed['right']:,} of {labels['records']:,}")


_CHARTS = (
    Chart(
        "Components",
        "Mean over records: what each part of the score comes to.",
        "bars",
        "points",
        _component_marks,
        "Component",
        (0.0, 1.0),
    ),
    Chart("Bands", "How many records score in each.", "bars", "count", _band_marks, "Band"),
    Chart(
        "Agreement with labels",
        "Share of the labelled records whose verdict is their label, by pattern set, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _label_marks,
        "Pattern set",
        (0.0, 1.0),
    ),
)


def _markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Score, pass rate, components and bands in the specification's order; agreement with labels, if there are any;
    failed records with their reasons; faults.
    """
    results, records = report["results"], report["records"]
    names = ", ".join(escape(source["name"]) for source in report["inputs"])
    passed = f"{results['passed']} of {records['scored']} passed ({percent(results['pass_rate'])})"
    scores: list[tuple[object, ...]] = [("score", _decimals(results["mean_score"]))]
    scores += [(name.replace("_", " "), _decimals(results["components"][name])) for name in COMPONENTS]
    parts = [
        "# Verification compliance\n",
        f"{names}: {passed}; {records['errors']} broken records.\n",
        table(("mean of", "value"), scores),
        "## Bands\n",
        table(("band", "records"), [(band, results["bands"][band]) for band in BANDS]),
        f"Records with an unsubstantiated claim: {results['unsubstantiated']}.\n",
        *judged_section(results),
    ]
    if "labels" in results:
        labels = results["labels"]
        rows: list[tuple[object, ...]] = [
            (f"verdict of '{name}' is the label", agreed["right"], percent(agreed["share"]))
            for name, agreed in labels["patterns"].items()
        ]
        rows.append(("all sets say the same", labels["agreement"]["same"], percent(labels["agreement"]["share"])))
        parts += [f"## Labelled records ({labels['records']})\n", table(("", "records", "share"), rows)]
        parts += ["## Effectiveness: a record is called unverified when its score does not pass\n"]
        parts += [effectiveness_table(labels["by_score"])]
        if "judged" in labels:
            parts += ["## Effectiveness: ... when the judge finds a claim that is not supported\n"]
            parts += [effectiveness_table(labels["judged"])]
    parts += failed_table(results["failed"])
    parts += [left_out(report), fault_table(report, "Broken records")]
    return "\n".join(filter(None, parts))


_decimals = partial(decimals, missing="-")


class _TranscriptLine(msgspec.Struct):
    """The keys of a line in records.jsonl that a row shows."""

    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    score: float | None = None
    band: str = ""
    components: dict[str, float] = {}
    unsubstantiated: list[str] = []
    judged: dict[str, Any] = {}


def _row_reader(report: Mapping[str, Json]) -> Callable[[_TranscriptLine], Row | None]:
    threshold = _threshold(report)

    def row(line: _TranscriptLine) -> Row:
        status, state, cells = line.status, state_of(line.status), (line.score, line.band)
        return Row(line.record, line.id, status, state, line.reason, cells, lambda: tuple(_evidence(line, threshold)))

    return row


def _evidence(line: _TranscriptLine, threshold: float) -> Iterator[Evidence]:
    """For a transcript that does not comply: the expected values and its shortfalls."""
    if line.score is None:
        yield Evidence("record", "an object with the transcript", line.reason)
        return
    yield Evidence("score", f"at least {threshold:g}", f"{line.score:g}", line.status == "passed")
    reasons = [part.strip() for part in line.reason.split("; ")]
    for name, value in line.components.items():
        words = name.replace("_", " ")
        why = next((part.partition(": ")[2] for part in reasons if part.startswith(words)), "")
        yield Evidence(words, "1", f"{value:g}: {why}" if why else f"{value:g}", value == 1.0)
    for claim in line.unsubstantiated:
        yield Evidence("claim", "substantiated", claim)
    yield from judged_evidence(line.judged)


VIEWS = Views(
    _METRICS,
    _PANELS,
    _markdown,
    summary=page_summary,
    charts=_CHARTS,
    rows=Rows((Column("Score", "number"), Column("Band")), _TranscriptLine, _row_reader),
    at_times=("judged", "labels"),
)
