"""A completion report as a row of the page: what was asked of it, and the evidence it gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.contract.claims import judged_evidence
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.selfcheck.params import SelfCheckParams
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import State
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["ROWS"]

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


class _Line(msgspec.Struct):
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


def _reader(report: Mapping[str, Json]) -> Callable[[_Line], Row | None]:
    params = validate(SelfCheckParams, report["params"], "params")
    questions = {question.id: question.question for question in params.questions}
    # What lets a report pass all the same is no reason for its failure.
    grave = {question.id for question in params.questions if question.required}
    grave |= {signal.message for signal in params.signals if signal.severity == "error"}

    def see(line: _Line) -> Row:
        state = _STATES.get(line.status, "none")
        cells = (", ".join(line.suspected), _LABELS[line.hallucinated])
        reason = _why(line, grave) if line.status == "failed" else line.reason
        return Row(line.record, line.id, line.status, state, reason, cells, lambda: tuple(_evidence(line, questions)))

    return see


def _why(line: _Line, grave: set[str]) -> str:
    result = _result(line.result)
    missed = [question.id for question in result.questions if not question.passed and question.id in grave]
    found = [signal.signal for signal in result.dangerSignals if signal.found and signal.signal in grave]
    parts = [f"not passed: {', '.join(missed)}"] if missed else []
    parts += [f"signals: {', '.join(found)}"] if found else []
    return "; ".join(parts) or "goal not reached"


def _evidence(line: _Line, questions: Mapping[str, str]) -> Iterator[Evidence]:
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


ROWS = Rows((Column("Suspected"), Column("Label")), _Line, _reader)
