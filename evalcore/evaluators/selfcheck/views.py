"""The views of a self check's report: metrics, panels, the page's summary and charts, Markdown, and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.claims import effectiveness_table, judged_evidence, judged_section, judged_tiles
from evalq.evalcore.contract.evaluator import Views
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.selfcheck.goals import HOW_TO_RESOLVE
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.report import failure_reasons
from evalq.evalcore.evaluators.selfcheck.score import QuestionResult, SignalResult
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS
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
    highest_first,
    number,
    of_all,
    passed_headline,
    rate_interval,
    state_of,
    without_result,
    without_verdict,
)
from evalq.evalcore.views.markdown import escape, failed_table, fault_table, left_out, percent, table
from evalq.evalcore.views.metrics import Metric, Panel, Plot, Threshold

_METRICS = (
    Metric("evalq_selfcheck_pass_rate", "Completion reports that pass the check.", "share", "pass_rate", recent=10),
    Metric("evalq_selfcheck_passed", "Completion reports that pass the check.", "count", "passed"),
    Metric(
        "evalq_selfcheck_question_pass_rate",
        "Completion reports that pass a question.",
        "share",
        "questions.{question}",
        ("question",),
    ),
    Metric(
        "evalq_selfcheck_signal_records",
        "Completion reports with a danger signal.",
        "count",
        "signals.{signal}",
        ("signal",),
    ),
    Metric(
        "evalq_selfcheck_suspected",
        "Completion reports that say all is done while their evidence does not carry it.",
        "count",
        "suspected.records",
    ),
    Metric("evalq_selfcheck_goals_verified", "Completion reports whose goal was verified.", "count", "goals.verified"),
    Metric("evalq_selfcheck_goals_reached", "Completion reports whose goal was reached.", "count", "goals.reached"),
    Metric(
        "evalq_selfcheck_true_positive_rate",
        "Hallucinated reports that the check stops, of those labelled so.",
        "share",
        "labels.tpr.value",
    ),
    Metric(
        "evalq_selfcheck_false_positive_rate",
        "Accurate reports that the check stops, of those labelled so.",
        "share",
        "labels.fpr.value",
    ),
    Metric(
        "evalq_selfcheck_precision",
        "Hallucinated ones among the labelled reports that the check stops.",
        "share",
        "labels.precision.value",
    ),
)


_PASSING = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.8, "good"))

_PANELS = (
    Panel(
        "Completion claims that hold",
        "Share of completion reports that pass all questions, newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), legend="{suite}"),),
        _PASSING,
        (0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Claims that hold, over time",
        "Share of completion reports that pass all questions, by suite.",
        "share",
        "lines",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), legend="{suite}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "Claims that hold, last 10 runs",
        "Share that pass all questions, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_selfcheck_pass_rate", ("suite",), recent=True, legend="{suite}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "By question",
        "Share of completion reports that pass each of the four questions.",
        "share",
        "bars",
        (Plot("evalq_selfcheck_question_pass_rate", ("question",), legend="{question}"),),
        _PASSING,
        (0, 1),
        width=12,
    ),
    Panel(
        "Danger signals",
        "Completion reports of the newest run in which each signal was found.",
        "count",
        "bars",
        (Plot("evalq_selfcheck_signal_records", ("signal",), "sum", legend="{signal}"),),
        width=12,
    ),
    Panel(
        "Caught and wrongly stopped",
        "Where reports are labelled: hallucinated ones that the check stops (0.7 or more is "
        "wanted), and accurate ones that it stops (0.2 or less).",
        "share",
        "lines",
        (
            Plot("evalq_selfcheck_true_positive_rate", ("suite",), legend="{suite} caught"),
            Plot("evalq_selfcheck_false_positive_rate", ("suite",), legend="{suite} wrongly stopped"),
            Plot("evalq_selfcheck_precision", ("suite",), legend="{suite} precision"),
        ),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Goals and suspicions",
        "Completion reports that pass, whose goal could be verified, and was reached; and those that say all is done "
        "while their evidence does not carry it.",
        "count",
        "stat",
        (
            Plot("evalq_selfcheck_passed", (), "sum", legend="passed"),
            Plot("evalq_selfcheck_goals_verified", (), "sum", legend="goal verified"),
            Plot("evalq_selfcheck_goals_reached", (), "sum", legend="goal reached"),
            Plot("evalq_selfcheck_suspected", (), "sum", legend="suspected"),
        ),
        width=12,
    ),
)


_MEASURES = {"tpr": "true positive rate", "fpr": "false positive rate", "precision": "precision", "recall": "recall"}
_MET: Mapping[str | None, State] = {"yes": "good", "no": "bad", "undecided": "doubtful"}
_CALLS = {"": "check", "any_signal": "any signal", "suspected": "suspected"}


def _page_summary(report: Mapping[str, Json]) -> Summary:
    """How many reports pass, and how many are suspected."""
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: State = "none" if scored == records["total"] else "doubtful"
    over = of_all(records) or rate_interval(passed, scored)
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), over, state),
        Tile("Failed", number(scored - passed, "count")),
        Tile("Suspected", number(results["suspected"]["records"], "count"), "say done, carry it not"),
    ]
    if "goals" in results:
        tiles.append(Tile("Goals reached", f"{results['goals']['reached']:,} of {results['goals']['verified']:,}"))
    tiles += judged_tiles(results)
    if records["errors"]:
        tiles.append(Tile("Not checked", number(records["errors"], "count"), "broken or not looked up", "doubtful"))
    if "labels" in results:
        rate = results["labels"]["tpr"]
        met = _MET.get(rate["met"], "none")
        tiles.append(Tile("Hallucinations found", number(rate["value"], "share"), "of the labelled ones", met))
    headline = passed_headline(passed, scored, "passed", "completion reports", without_verdict(records))
    return Summary(headline, without_result(records), "none" if scored else "doubtful", tuple(tiles))


def _question_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    scored = report["records"]["scored"]
    for question, share in report["results"]["questions"].items():
        if share is not None:
            low, high = wilson(round(share * scored), scored)
            yield Mark(question, share, low, high)


def _signal_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    return highest_first(report["results"]["signals"])


def _suspicion_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    return highest_first(report["results"]["suspected"]["reasons"])


def _effectiveness_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    labels = report["results"].get("labels")
    for key, rule in _CALLS.items() if labels else ():
        for measure, name in _MEASURES.items():
            rate = (labels[key] if key else labels)[measure]
            target = "" if rate["target"] is None else f"target {number(rate['target'], 'share')}: {rate['met']}"
            state = _MET.get(rate["met"], "none")
            yield Mark(f"{rule}: {name}", rate["value"], rate["low"], rate["high"], state, note=target)


_CHARTS = (
    Chart(
        "Questions answered yes",
        "Share of the reports, with 95 % intervals (Wilson).",
        "dots",
        "share",
        _question_marks,
        "Question",
        (0.0, 1.0),
    ),
    Chart("Danger signals", "Reports in which each was found.", "bars", "count", _signal_marks, "Signal"),
    Chart(
        "Suspected",
        "Reports that say all is done while what they hand in does not carry it.",
        "bars",
        "count",
        _suspicion_marks,
        "Reason",
    ),
    Chart(
        "Effectiveness",
        "Agreement with labels, with 95 % intervals; a target is met where all of an interval is on its side.",
        "dots",
        "share",
        _effectiveness_marks,
        "Measure",
        (0.0, 1.0),
    ),
)


def _markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Verdicts; questions and signals in the order of the params; effectiveness if records are labelled; failed records
    with their reasons; faults.
    """
    results, records = report["results"], report["records"]
    params = validate(SelfCheckParams, report["params"], "params")
    names = ", ".join(escape(source["name"]) for source in report["inputs"])
    passed = f"{results['passed']} of {records['scored']} checks passed ({percent(results['pass_rate'])})"
    unresolved, suspected = results.get("unresolved", 0), results["suspected"]
    doubtful = f"{suspected['records']} of {records['scored']} reports say that all is done, while what they hand in"
    questions = dict.fromkeys(question.id for question in params.questions)
    signals = dict.fromkeys(signal.message for signal in params.signals)
    parts = [
        "# Self check\n",
        f"{names}: {passed}; {records['errors'] - unresolved} broken records.\n",
        *(f"**{escape(notice)}**\n" for notice in _notices(report)),
        "## Questions\n",
        table(("question", "yes"), [(name, percent(results["questions"][name])) for name in questions]),
        "## Danger signals\n",
        table(("signal", "records"), [(message, results["signals"][message]) for message in signals]),
        "## Suspected\n",
        f"{doubtful} does not carry it. They pass or fail as above.\n",
        table(("reason", "records"), [(reason, suspected["reasons"][reason]) for reason in REASONS]),
    ]
    if "goals" in results:
        goals = results["goals"]
        parts.append(f"Goal reached in {goals['reached']} of {goals['verified']} records where it was verified.\n")
    parts += judged_section(results)
    if "labels" in results:
        labels = results["labels"]
        parts += [
            "## Effectiveness: a record is called hallucinated when its check does not pass\n",
            effectiveness_table(labels),
            "## Effectiveness: ... when any signal is found\n",
            effectiveness_table(labels["any_signal"]),
            "## Effectiveness: ... when it is suspected\n",
            effectiveness_table(labels["suspected"]),
        ]
        if "judged" in labels:
            parts += ["## Effectiveness: ... when the judge finds a claim that is not supported\n"]
            parts += [effectiveness_table(labels["judged"])]
    parts += failed_table(results["failed"])
    broken = "Broken records, and those not looked up" if unresolved else "Broken records"
    parts += [left_out(report), fault_table(report, broken)]
    return "\n".join(filter(None, parts))


def _notices(report: Mapping[str, Json]) -> list[str]:
    """Warnings about records whose expected paths were not looked up, and about keys that no record has."""
    count, total = report["results"].get("unresolved", 0), report["records"]["total"]
    if not count:
        return _never(report)
    notice = f"{count} of {total} records were not checked: their expectedPaths were not looked up."
    return [f"{notice} Where the files are, run: {HOW_TO_RESOLVE} (then evaluate resolved.jsonl)"]


_WITHOUT = ("no test output", "no requirements")


def _never(report: Mapping[str, Json]) -> list[str]:
    """A warning if no record has any of the keys that are checked: they may have other names."""
    results, checked = report["results"], report["records"]["scored"]
    reasons = results["suspected"]["reasons"]
    if not checked or results["passed"] or any(reasons.get(reason) != checked for reason in _WITHOUT):
        return []
    keys = "testOutput, requirementsList"
    return [f"no record has {keys}, so none can pass. Do your records have other keys? (See the page of selfcheck.)"]


class _Result(msgspec.Struct):
    """The parts of a check's result that a row shows."""

    questions: list[QuestionResult] = []
    dangerSignals: list[SignalResult] = []


class _ReportLine(msgspec.Struct):
    """The keys of a line in records.jsonl that a row shows."""

    record: str
    id: str = ""
    status: str = ""
    reason: str = ""
    hallucinated: bool | None = None
    result: msgspec.Raw = msgspec.Raw(b"{}")
    suspected: list[str] = []
    judged: dict[str, Any] = {}


_LABELS = {True: "hallucinated", False: "genuine", None: ""}
_result = msgspec.json.Decoder(_Result).decode


def _row_reader(report: Mapping[str, Json]) -> Callable[[_ReportLine], Row | None]:
    params = validate(SelfCheckParams, report["params"], "params")
    questions = {question.id: question.question for question in params.questions}
    reasons = failure_reasons(params)

    def row(line: _ReportLine) -> Row:
        reason, state = line.reason, state_of(line.status)
        if line.status == "failed":
            result = _result(line.result)
            reason = "; ".join(reasons(result.questions, result.dangerSignals)) or "goal not reached"
        cells = (", ".join(line.suspected), _LABELS[line.hallucinated])
        return Row(line.record, line.id, line.status, state, reason, cells, lambda: tuple(_evidence(line, questions)))

    return row


def _evidence(line: _ReportLine, questions: Mapping[str, str]) -> Iterator[Evidence]:
    """For a report that does not pass: each question with its evidence, and the signals found."""
    if line.reason:
        yield Evidence("record", "a report that can be checked", line.reason)
    result = _result(line.result)
    for question in result.questions:
        text = questions.get(question.id, "")
        yield Evidence(question.id, text, question.evidence or "nothing", question.passed)
    for signal in result.dangerSignals:
        if signal.found:
            yield Evidence(signal.signal, "not in the report", signal.context or "found")
    yield from judged_evidence(line.judged)


VIEWS = Views(
    _METRICS,
    _PANELS,
    _markdown,
    _notices,
    summary=_page_summary,
    charts=_CHARTS,
    rows=Rows((Column("Suspected"), Column("Label")), _ReportLine, _row_reader),
    at_times=("unresolved", "judged", "labels"),
)
