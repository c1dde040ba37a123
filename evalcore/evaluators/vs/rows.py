"""An output as a row of the page: its case and agent, and of a failed one each check beside what came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.charts import State
from evalq.evalcore.views.rows import Column, Evidence, Row, Rows

__all__ = ["ROWS"]

_STATES: Mapping[str, State] = {"PASSED": "good", "FAILED": "bad", "ERROR": "bad", "dead": "bad"}


class _Unmet(msgspec.Struct):
    kind: str = ""
    issue: str = ""


class _Held(msgspec.Struct):
    key: str
    passed: bool
    unmet: _Unmet | None = None


class _Phases(msgspec.Struct):
    passed: bool
    reason: str | None = None
    missing_phases: list[Any] = []


class _Parts(msgspec.Struct):
    passed: bool
    reason: str | None = None
    checks: dict[str, bool] = {}


class _Checks(msgspec.Struct):
    phases: _Phases | None = None
    provenance: _Parts | None = None
    t_scores: _Parts | None = None
    self_critique: _Parts | None = None
    expected: list[_Held] = []


class _Line(msgspec.Struct):
    record: str
    id: str | None = None
    status: str = ""
    issue: str | None = None
    reason: str | None = None
    case: str | None = None
    repeat: int | None = None
    agent: str | None = None
    option: str | None = None
    faults: list[str] = []
    checks: msgspec.Raw = msgspec.Raw(b"null")


_checks = msgspec.json.Decoder(_Checks | None).decode


def _reader(report: Mapping[str, Json]) -> Callable[[_Line], Row | None]:
    wanted = {
        (case["id"], expected["key"]): _in_words(expected)
        for case in report["params"]["cases"]
        for expected in case["expected"]
    }

    def see(line: _Line) -> Row:
        cells = (line.agent, line.case, line.repeat, line.option)
        reason = line.issue or line.reason or ""
        state = _STATES.get(line.status, "none")
        status = line.status.lower()
        return Row(line.record, line.id or "", status, state, reason, cells, lambda: tuple(_evidence(line, wanted)))

    return see


def _in_words(expected: Mapping[str, Any]) -> str:
    want = msgspec.json.encode(expected["want"]).decode()
    return want if expected["op"] == "==" else f"{expected['op']} {want}"


def _evidence(line: _Line, wanted: Mapping[tuple[str, str], str]) -> Iterator[Evidence]:
    """What an output fell short of, then what it met."""
    for fault in line.faults:
        path, _, what = fault.partition(": ")
        yield Evidence(f"contract: {path}", "as the contract has it", what)
    checks = _checks(line.checks)
    if checks is None:
        if not line.faults:
            yield Evidence("output", "one JSON object", line.issue or line.reason or "")
        return
    found = [*_validators(checks, line.issue or "")]
    for held in checks.expected:
        came = "as expected" if held.passed else held.unmet.issue if held.unmet else "something else"
        want = wanted.get((line.case or "", held.key), "")
        found.append(Evidence(f"expected: {held.key}", want, came.partition(", expected ")[0], held.passed))
    yield from sorted(found, key=lambda piece: piece.fine)


def _validators(checks: _Checks, issue: str) -> Iterator[Evidence]:
    if phases := checks.phases:
        missing = ", ".join(map(str, phases.missing_phases))
        came = phases.reason or (f"missing: {missing}" if missing else "all executed")
        yield Evidence("phases", "all phases of its level executed", came, phases.passed)
    if scores := checks.t_scores:
        said = next((part for part in issue.split("; ") if part.startswith("T-scores: ")), "")
        came = "as expected" if scores.passed else scores.reason or said.removeprefix("T-scores: ") or "not as expected"
        yield Evidence("T-scores", "an option of low typicality, and no modal selection", came, scores.passed)
    for name, parts in (("self-critique", checks.self_critique), ("provenance", checks.provenance)):
        if parts:
            asked = ", ".join(key.removeprefix("has_") for key in parts.checks)
            lacks = ", ".join(key.removeprefix("has_") for key, there in parts.checks.items() if not there)
            came = parts.reason or (f"no {lacks}" if lacks else "all there")
            yield Evidence(name, asked, came, parts.passed)


ROWS = Rows((Column("Agent"), Column("Case"), Column("Repeat", "number"), Column("Option")), _Line, _reader)
