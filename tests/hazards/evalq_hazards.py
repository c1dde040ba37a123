"""Lines that kill, hang, eat memory or fail: an evaluator from outside the package, for tests of isolation.

A record is a JSON line {"id": ..., "do": ..., "value": ..., "waits": ...}. ``do`` names what its evaluation does to its
process; one that ``waits`` stays until a gate is opened.
`patient` is a check of answers that waits so.
Where the variable HAZARDS_IMPORT is set, importing this module fails with that text, as an error of the type that
HAZARDS_ERROR names (ImportError). Where HAZARDS_LOUD is set, it prints at its import and wherever it is asked
for anything, and has a measure, and the command `hazards-echo`.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import (
    Batch,
    Command,
    CommandLine,
    Evaluator,
    InputResult,
    Measure,
    Measures,
    Observation,
    Outcome,
    Params,
    Request,
    State,
    Tally,
    Views,
)
from evalq.evalcore.model.canonical import Json, canonical_json

if "HAZARDS_IMPORT" in os.environ:
    raise getattr(builtins, os.environ.get("HAZARDS_ERROR", "ImportError"))(os.environ["HAZARDS_IMPORT"])


LOUD = "HAZARDS_LOUD" in os.environ
if LOUD:
    print("hello from hazards")  # noqa: T201 - as libraries greet


class HazardParams(Params):
    """``pause``: seconds a chunk sleeps. ``flag``: a file; while it is there, hazards are armed. Empty: always.

    ``gate``: a file; while it is there, chunks of records that wait are not computed.
    """

    pause: float = 0.0
    flag: str = ""
    gate: str = ""


class HazardState(State):
    """Count and sum of the values."""

    count: int = 0
    sum: int = 0

    def merge(self, later: HazardState) -> None:
        """Add up."""
        self.count += later.count
        self.sum += later.sum


class _Row(msgspec.Struct):
    id: str
    value: int
    do: str = ""
    waits: bool = False


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fall() -> None:
    """The whole worker, as a container's end would be."""
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _hang() -> None:
    while True:
        time.sleep(3600)


def _eat() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(b"x" * (16 << 20)))


def _leave() -> None:
    os._exit(7)


def _exit() -> None:
    sys.exit(0)


def _print() -> None:
    print("for whoever mends me", flush=True)  # noqa: T201 - which is what it is for


def _raise() -> None:
    raise ValueError("a bug")


_DEEDS: dict[str, Callable[[], None]] = {
    "kill": _kill,
    "fall": _fall,
    "hang": _hang,
    "eat": _eat,
    "leave": _leave,
    "exit": _exit,
    "print": _print,
    "raise": _raise,
}


def _loud(said: Any) -> Any:
    print("loud hazards")  # noqa: T201 - as somebody looks for a fault
    return said


def _echo(_options: Mapping[str, Any]) -> str:
    return str(_loud("an answer"))


def _asked(request: Request) -> Request:
    return request if not LOUD else Request(*_loud((request.inputs, request.params, request.options)))


def _see(line: Mapping[str, Any]) -> Observation:
    return Observation(str(line["id"]), _loud((float(line["value"]),)))


class Hazards(Evaluator[HazardParams, HazardState]):
    """Adds up values, unless a record does something worse."""

    name = "hazards"
    version = "1"
    summary = "Adds up values, unless a record does something worse."
    Params = HazardParams
    State = HazardState
    command = CommandLine(
        request=_asked, commands=(Command("hazards-echo", "Say something.", (), _echo),) if LOUD else ()
    )
    measures = Measures((Measure("value", "score", 0.0, 1000.0),), _see) if LOUD else None
    views = Views(notices=lambda report: _loud(["a note"]) if LOUD else [])

    def evaluate(self, batch: Batch, params: HazardParams) -> Outcome[HazardState]:
        """The sum, and a line a record."""
        state, lines = HazardState(), []
        time.sleep(params.pause)
        for number, data in batch.lines():
            row = msgspec.json.decode(data, type=_Row)
            if row.waits and params.gate:
                patient(None, params.gate)
            if row.do and (not params.flag or Path(params.flag).exists()):
                _DEEDS[row.do]()
            state.count += 1
            state.sum += row.value
            line = {"record": f"{batch.source}:{number}", "id": row.id, "status": "scored", "value": row.value}
            lines.append(canonical_json(line))
        return Outcome(state, Tally(scored=state.count), lines)

    def section(self, results: Sequence[InputResult[HazardState]], params: HazardParams) -> dict[str, Json]:
        """Count and sum over all inputs."""
        if LOUD:
            print("a section of hazards")  # noqa: T201 - as somebody looks for a fault
        return {"count": sum(r.state.count for r in results), "sum": sum(r.state.sum for r in results)}


evaluator = Hazards()


def patient(_answer: object, gate: str) -> bool:
    """Passes once the file ``gate`` is gone."""
    while Path(gate).exists():
        time.sleep(0.01)
    return True
