"""What of the self check's report is watched over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.claims import judged_evidence, judged_section
from evalq.evalcore.contract.effectiveness import effectiveness_table
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.selfcheck.goals import HOW_TO_RESOLVE
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.evaluators.selfcheck.suspicion import REASONS
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.exact import wilson
from evalq.evalcore.views.charts import Chart, Mark, State, Summary, Tile, number, of_all, without_result
from evalq.evalcore.views.failures import failed_table
from evalq.evalcore.views.markdown import escape, left_out, table
from evalq.evalcore.views.metrics import Metric
from evalq.evalcore.views.panels import Panel, Plot, Threshold
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["CHARTS", "METRICS", "PANELS", "ROWS", "markdown", "notices", "summary"]

METRICS = (
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


# How the self check's report is looked at over time.

_PASSING = (Threshold(None, "bad"), Threshold(0.5, "doubtful"), Threshold(0.8, "good"))

PANELS = (
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


# What the page of a self check begins with and draws.

_MEASURES = {"tpr": "true positive rate", "fpr": "false positive rate", "precision": "precision", "recall": "recall"}
_MET: Mapping[str | None, State] = {"yes": "good", "no": "bad", "undecided": "doubtful"}
_CALLS = {"": "check", "any_signal": "any signal", "suspected": "suspected"}


def summary(report: Mapping[str, Json]) -> Summary:
    """How many reports pass, and how many are suspected."""
    results, records = report["results"], report["records"]
    scored, passed = records["scored"], results["passed"]
    state: State = "none" if scored == records["total"] else "doubtful"
    tiles = [
        Tile("Pass rate", number(results["pass_rate"], "share"), of_all(records) or _interval(passed, scored), state)
    ]
    tiles.append(Tile("Failed", number(scored - passed, "count")))
    suspected = results["suspected"]["records"]
    tiles.append(Tile("Suspected", number(suspected, "count"), "say done, carry it not"))
    if "goals" in results:
        tiles.append(Tile("Goals reached", f"{results['goals']['reached']:,} of {results['goals']['verified']:,}"))
    if "judged" in results:
        judged = results["judged"]
        share = number(judged["supported_share"]["value"], "share")
        tiles.append(Tile("Claims supported", share, f"by {', '.join(judged['judges'])}"))
    if records["errors"]:
        tiles.append(Tile("Not checked", number(records["errors"], "count"), "broken or not looked up", "doubtful"))
    if "labels" in results:
        rate = results["labels"]["tpr"]
        tiles.append(
            Tile(
                "Hallucinations found",
                number(rate["value"], "share"),
                "of the labelled ones",
                _MET.get(rate["met"], "none"),
            )
        )
    # Of all records: where three of four are broken, one that passes is no whole.
    return Summary(
        f"{passed:,} of {records['total']:,} completion reports passed", without_result(records), tiles=tuple(tiles)
    )


def _interval(part: int, of: int) -> str:
    if not of:
        return ""
    low, high = wilson(part, of)
    return f"{100 * low:.1f} to {100 * high:.1f} %, 95 % interval"


def _question_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    scored = report["records"]["scored"]
    for question, share in report["results"]["questions"].items():
        if share is not None:
            low, high = wilson(round(share * scored), scored)
            yield Mark(question, share, low, high)


def _signal_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    for signal, records in sorted(report["results"]["signals"].items(), key=lambda item: (-item[1], item[0])):
        yield Mark(signal, records)


def _suspicion_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    reasons = report["results"]["suspected"]["reasons"]
    for reason, records in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield Mark(reason, records)


def _effectiveness_marks(report: Mapping[str, Json]) -> Iterator[Mark]:
    labels = report["results"].get("labels")
    for key, way in _CALLS.items() if labels else ():
        for measure, name in _MEASURES.items():
            found = (labels[key] if key else labels)[measure]
            target = "" if found["target"] is None else f"target {number(found['target'], 'share')}: {found['met']}"
            state = _MET.get(found["met"], "none")
            yield Mark(f"{way}: {name}", found["value"], found["low"], found["high"], state, note=target)


CHARTS = (
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


# A self check's report for people.


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """Verdicts; questions and signals in the order they are asked in; effectiveness where records are labelled; failed
    records with their reasons; faults.
    """
    results, records = report["results"], report["records"]
    passed = f"{results['passed']} of {records['scored']} checks passed ({_percent(results['pass_rate'])})"
    names = ", ".join(escape(given["name"]) for given in report["inputs"])
    broken = records["errors"] - results.get("unresolved", 0)
    parts = ["# Self check\n", f"{names}: {passed}; {broken} broken records.\n"]
    parts += [f"**{escape(notice)}**\n" for notice in notices(report)]
    params = validate(SelfCheckParams, report["params"], "params")
    asked = dict.fromkeys(question.id for question in params.questions)
    sought = dict.fromkeys(signal.message for signal in params.signals)
    questions: list[tuple[object, ...]] = [(name, _percent(results["questions"][name])) for name in asked]
    signals: list[tuple[object, ...]] = [(message, results["signals"][message]) for message in sought]
    parts += ["## Questions\n", table(("question", "yes"), questions)]
    parts += ["## Danger signals\n", table(("signal", "records"), signals)]
    suspected = results["suspected"]
    reasons: list[tuple[object, ...]] = [(reason, suspected["reasons"][reason]) for reason in REASONS]
    told = (
        f"{suspected['records']} of {records['scored']} reports say that all is done, while what they hand in does not"
    )
    parts += [
        "## Suspected\n",
        f"{told} carry it. They pass or fail as above.\n",
        table(("reason", "records"), reasons),
    ]
    if "goals" in results:
        goals = results["goals"]
        parts.append(f"Goal reached in {goals['reached']} of {goals['verified']} records where it was verified.\n")
    parts += judged_section(results)
    if "labels" in results:
        parts += ["## Effectiveness: a record is called hallucinated when its check does not pass\n"]
        parts += [effectiveness_table(results["labels"])]
        parts += ["## Effectiveness: ... when any signal is found\n"]
        parts += [effectiveness_table(results["labels"]["any_signal"])]
        parts += ["## Effectiveness: ... when it is suspected\n"]
        parts += [effectiveness_table(results["labels"]["suspected"])]
        if "judged" in results["labels"]:
            parts += ["## Effectiveness: ... when the judge finds a claim that is not supported\n"]
            parts += [effectiveness_table(results["labels"]["judged"])]
    parts += failed_table(results["failed"])
    parts += filter(None, [left_out(report)])
    if report["faults"]:
        faults: list[tuple[object, ...]] = [(fault["where"], fault["reason"]) for fault in report["faults"]]
        title = "Broken records, and those not looked up" if results.get("unresolved") else "Broken records"
        parts += [f"## {title}\n", table(("where", "reason"), faults)]
    return "\n".join(parts)


def notices(report: Mapping[str, Json]) -> list[str]:
    """How many records were left out since nobody looked up their expected paths, and how to do it; or nothing."""
    count, total = report["results"].get("unresolved", 0), report["records"]["total"]
    if not count:
        return []
    told = f"{count} of {total} records were not checked: their expectedPaths were not looked up."
    return [f"{told} Where the files are, run: {HOW_TO_RESOLVE} (then evaluate resolved.jsonl)"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"


# A completion report as a row of the page: what was asked of it, and the evidence it gave.

_STATES: Mapping[str, State] = {"passed": "good", "failed": "bad", "error": "bad", "dead": "bad"}


class _Question(msgspec.Struct):
    id: str
    passed: bool
    evidence: str | None = None


class _Signal(msgspec.Struct):
    signal: str
    found: bool
    context: str | None = None


class _Result(msgspec.Struct):
    questions: list[_Question] = []
    dangerSignals: list[_Signal] = []


class _ReportLine(msgspec.Struct):
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
    # What lets a report pass all the same is no reason for its failure.
    grave = {question.id for question in params.questions if question.required}
    grave |= {signal.message for signal in params.signals if signal.severity == "error"}

    def see(line: _ReportLine) -> Row:
        state = _STATES.get(line.status, "none")
        cells = (", ".join(line.suspected), _LABELS[line.hallucinated])
        reason = _why(line, grave) if line.status == "failed" else line.reason
        return Row(line.record, line.id, line.status, state, reason, cells, lambda: tuple(_evidence(line, questions)))

    return see


def _why(line: _ReportLine, grave: set[str]) -> str:
    result = _result(line.result)
    missed = [question.id for question in result.questions if not question.passed and question.id in grave]
    found = [signal.signal for signal in result.dangerSignals if signal.found and signal.signal in grave]
    parts = [f"not passed: {', '.join(missed)}"] if missed else []
    parts += [f"signals: {', '.join(found)}"] if found else []
    return "; ".join(parts) or "goal not reached"


def _evidence(line: _ReportLine, questions: Mapping[str, str]) -> Iterator[Evidence]:
    if line.reason:
        yield Evidence("record", "a report that can be checked", line.reason)
    result = _result(line.result)
    for question in result.questions:
        asked = questions.get(question.id, "")
        yield Evidence(question.id, asked, question.evidence or "nothing", question.passed)
    for signal in result.dangerSignals:
        if signal.found:
            yield Evidence(signal.signal, "not in the report", signal.context or "found")
    yield from judged_evidence(line.judged)


ROWS = Rows((Column("Suspected"), Column("Label")), _ReportLine, _row_reader)
