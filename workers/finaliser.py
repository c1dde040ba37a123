"""Finalising a detached run without its producer: fold what the ledger holds, keep the report there, close the run.

`Finalisers` does it in a process of its own, so that neither a large state nor an evaluator's bug takes the worker
along. Doing it twice gives the same bytes and changes nothing. What a worker cannot do (answers are trimmed, or
settling needs an input that it may not read) is left to `evalq watch`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import redis

from evalcore import registry
from evalcore.canonical import Json, canonical_json
from evalcore.errors import EvalqError, InfrastructureError
from evalcore.files import open_input
from evalcore.fold import Fold, InputSummary
from evalcore.params import validate
from evalcore.partial import decode
from evalcore.plan import Chunk, Header, Seal
from evalcore.version import code_version
from workers.calls import Calls
from workers.child import child
from workers.connect import connect
from workers.driver import driver_token
from workers.history import History, Place, entry_of
from workers.leaving import LeftSweeps
from workers.ledger import Ledger
from workers.reading import find
from workers.reports import Reports
from workers.settings import Settings
from workers.standing import TRIES

__all__ = ["Finalisers", "finalise"]

log = logging.getLogger("evalq.worker")

_STEP = 8


def finalise(run: str, ledger: Ledger, settings: Settings) -> bool:
    """Report, history entry and state of a complete detached run; False for one that is not to be finalised here.

    Raises EvalqError with the reason why it is left to whoever watches the run.
    """
    reports = Reports(ledger, settings)
    header, facts = ledger.header(run), reports.detached(run)
    chunks, seal = reports.plan(run)
    if header is None or facts is None or seal is None or header.code_version != code_version():
        return False
    if len(chunks) != seal.chunks:
        raise InfrastructureError(f"the ledger has lost {seal.chunks - len(chunks)} of its {seal.chunks} chunks")
    if reports.begin(run) > TRIES:
        return False
    report = _fold(header, chunks, seal, ledger, [Path(root) for root in settings.roots] or [Path.cwd()])
    seconds, micros = ledger.client.time()
    took = max(0.0, round(seconds + micros / 1_000_000 - facts.began, 3))
    evaluator = registry.get(header.evaluator)
    place = Place(header.evaluator, header.suite, facts.target)
    entry = entry_of(evaluator, run, place, report, took, facts.tags)
    History(ledger.client, settings).record(entry, [metric.name for metric in evaluator.metrics if metric.recent])
    reports.store(run, canonical_json(report) + b"\n")
    ledger.close(run, "done")
    return True


def _fold(
    header: Header, chunks: Sequence[Chunk], seal: Seal, ledger: Ledger, roots: Sequence[Path]
) -> dict[str, Json]:
    evaluator = registry.get(header.evaluator)
    fold = Fold(evaluator, validate(evaluator.Params, header.params, "manifest"), len(header.inputs))
    for first in range(0, len(chunks), _STEP):
        some = chunks[first : first + _STEP]
        for chunk, partial in zip(some, ledger.fetch(header.run, [chunk.seq for chunk in some]), strict=True):
            if partial is None or not partial.data:
                raise InfrastructureError(f"the answer of chunk {chunk.seq} is no longer in the ledger")
            fold.add(chunk.input, decode(partial, evaluator, chunk))
    members: list[list[str]] = [[] for _ in header.inputs]
    for chunk in chunks:
        members[chunk.input].extend(chunk.members)
    summaries = [
        InputSummary(planned.name, planned.given, sha256, tuple(names))
        for planned, sha256, names in zip(header.inputs, seal.sha256, members, strict=True)
    ]

    def reopen(index: int) -> BinaryIO:
        path = find(header.inputs[index], roots)
        if path is None:
            raise InfrastructureError(f"{header.inputs[index].given} is under no root of this worker")
        return open_input(path)

    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        report, _ = fold.finish(summaries, reopen, Path(scratch))
    return report


class Finalisers:
    """At most one process at a time that finalises, for a worker's attendant to start and to end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, runs: Sequence[str]) -> None:
        """Begin with the first of ``runs``, unless one is at it."""
        if not runs or (self._process is not None and self._process.poll() is None):
            return
        command = child("workers.finaliser", runs[0])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - this program's own module
        assert self._process.stdin is not None
        self._process.stdin.write(self._settings.model_dump_json().encode())
        self._process.stdin.close()

    def close(self) -> None:
        """End what is at it; the run stays as it was, for another worker."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def main(run: str, settings: Any) -> int:
    """Finalise ``run``, or begin the evaluation of a sweep that was left; returns an exit code."""
    chosen = Settings.model_construct(**settings)
    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        ledger = Ledger(connect(chosen.ledger_url, chosen), chosen)
        left = LeftSweeps(Calls(ledger.client, chosen), chosen)
        if left.find(run) is not None:
            left.evaluate(run, Ledger(ledger.client, chosen, driver_token()))
        else:
            finalise(run, ledger, chosen)
    except EvalqError as error:
        log.warning("run %s is left to `evalq watch`: %s", run, error)
        return error.exit_code
    except (redis.RedisError, OSError) as error:
        log.warning("run %s is not finished yet: %s", run, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], msgspec.json.decode(sys.stdin.buffer.read())))
