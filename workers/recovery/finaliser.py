"""Finalising a detached run without its producer: fold its answers, store the report in the ledger, close the run.

`Finalisers` does it in a separate process, so that neither a large state nor an evaluator's bug harms the worker. Doing
it twice gives the same bytes and changes nothing. If a worker cannot do it (answers are trimmed, or it may not read an
input that is needed), it is left to `evalq watch`.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence, Set
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO

import msgspec
import redis

from evalq.evalcore.compare.counting import CaseCounter, unusable_of
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.partial import decode
from evalq.evalcore.errors import EvalqError, InfrastructureError
from evalq.evalcore.files import open_input
from evalq.evalcore.fold import Fold, InputSummary
from evalq.evalcore.model.canonical import Json, canonical_line
from evalq.evalcore.model.lines import encode_in_lines
from evalq.evalcore.model.manifest import Chunk, Header, Seal
from evalq.evalcore.version import code_version
from evalq.workers.inputs import find
from evalq.workers.ledger.detached import Detached, Reports
from evalq.workers.ledger.failures import Failures
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.ledger.history import Drift, History, HistoryKey, entry_of
from evalq.workers.ledger.keys import is_wrong_type
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.ledger.scripts import server_seconds
from evalq.workers.ledger.sweeps import SweepLedger
from evalq.workers.processes import identity
from evalq.workers.processes.environment import without_secrets
from evalq.workers.processes.identity import code_change
from evalq.workers.processes.system import child, signal_name
from evalq.workers.recovery.unattended import UnattendedSweeps
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import explained
from evalq.workers.settings import Settings, take_checks

log = logging.getLogger("evalq.worker")


class FinishedCases:
    """Counts a run's records into its cases. An error here is logged, and does not prevent the report."""

    def __init__(self, evaluator: Evaluator[Any, Any], run: str) -> None:
        self._run = run
        self._counter: CaseCounter | None = CaseCounter(evaluator)

    def add(self, lines: Sequence[bytes]) -> None:
        """Count the next records."""
        with self._log_errors("its cases are not kept"):
            if self._counter is not None:
                self._counter.add(lines)

    def cases(self, suite: str, facts: Detached, report: dict[str, Json], data: bytes) -> RunCases | None:
        """The cases of the run whose ``report`` is written as ``data``; None if they could not be counted."""
        with self._log_errors("its cases are not kept"):
            if self._counter is not None:
                run = self._counter.cases(report, run=self._run, digest_of_report=hashlib.sha256(data).hexdigest())
                run.name, run.suite, run.target, run.tags = facts.name, suite, facts.target, facts.tags
                run.usage, run.day = facts.usage, _day(facts.began)
                run.took = {**run.took, **facts.took}
                if facts.usage is not None:
                    run.cases.unusable = unusable_of(run.cases, facts.causes)
                return run
        return None

    def count(self, drift: Drift, key: HistoryKey, cases: RunCases) -> None:
        """Count the run in the drift of its suite, as its command would have."""
        with self._log_errors("it is not counted in the drift of its suite"):
            drift.count(key, cases)

    @contextlib.contextmanager
    def _log_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (EvalqError, redis.ResponseError) as error:
            # A wrong key of the history is no reason to fail either; for a server that is full or away, wait.
            if isinstance(error, redis.ResponseError) and not is_wrong_type(error):
                raise
            log.warning("run %s: %s: %s", self._run, what, explained(error, "the ledger"))
            # Stop counting: incomplete cases would look complete.
            self._counter = None


def _day(began: float) -> str:
    """The day of a time in seconds since 1970, in UTC; empty for a run that does not say when it began."""
    return datetime.fromtimestamp(began, UTC).date().isoformat() if began > 0 else ""


# Answers fetched at once; a single one may have many megabytes.
_STEP = 8
_OUTPUT_BYTES = 8000
_MOST_RUNS = 100
"""Runs that one finalising process takes: it costs more to start than a small report to make."""


def finalise(run: str, ledger: RunLedger, settings: Settings) -> bool:
    """Make the report and the history entry of a complete detached run and close it; False if not to be done here.

    Raises EvalqError with the reason if it is left to `evalq watch`.
    """
    reports = Reports(ledger, settings)
    header, facts = ledger.header(run), reports.detached(run)
    planned, seal = reports.planned(run), reports.seal(run)
    if header is None or facts is None or seal is None or header.code_version != code_version():
        return False
    # Before any work, which would be in vain.
    if planned != seal.chunks:
        raise InfrastructureError(f"the ledger has lost {seal.chunks - planned} of the run's {seal.chunks} chunks")
    evaluator = plugins.get(header.evaluator)
    counted = evaluator.measures and sum(chunk.records for chunk in reports.chunks(run)) <= settings.cases_records
    counter = FinishedCases(evaluator, run) if counted else None
    roots = [Path(root) for root in settings.roots] or [Path.cwd()]
    try:
        report = _fold(header, reports.chunks(run), seal, ledger, roots, counter)
    except EvalqError:
        if reports.detached(run) != facts:  # its producer came back and collected answers: no failure
            return False
        raise
    if reports.detached(run) != facts:  # the producer that came back makes the report
        return False
    # The server's clock may have been set back since the run began.
    took = max(0.0, round(server_seconds(ledger.client) - facts.began, 3))
    key = HistoryKey(header.evaluator, header.suite, facts.target)
    entry = entry_of(evaluator, run, key, report, took, facts.tags)
    # History first: a run with a report is not finalised again, so a missing entry would stay missing.
    History(ledger.client, settings).record(entry, [metric.name for metric in evaluator.views.metrics if metric.recent])
    data = canonical_line(report)
    if counter is not None and (cases := counter.cases(header.suite, facts, report, data)) is not None:
        counter.count(Drift(ledger.client, settings), key, cases)
        reports.keep_cases(run, encode_in_lines(cases))
    reports.store(run, data)
    ledger.close(run, "done")
    return True


def _fold(
    header: Header,
    chunks: Iterator[Chunk],
    seal: Seal,
    ledger: RunLedger,
    roots: Sequence[Path],
    counter: FinishedCases | None,
) -> dict[str, Json]:
    evaluator = plugins.get(header.evaluator)
    fold = Fold(evaluator, validate(evaluator.Params, header.params, "manifest"), len(header.inputs))
    members: list[list[str]] = [[] for _ in header.inputs]
    folded = 0
    # Read plan and answers in pages: a detached run may have any number of chunks.
    while some := list(islice(chunks, _STEP)):
        for chunk, partial in zip(some, ledger.collect(header.run, [chunk.seq for chunk in some]), strict=True):
            if partial is None or not partial.data:
                raise InfrastructureError(f"the answer of chunk {chunk.seq} is no longer in the ledger")
            outcome = decode(partial, evaluator, chunk)
            fold.add(chunk.input, outcome)
            members[chunk.input].extend(chunk.members)
            folded += 1
            if counter is not None:
                counter.add(outcome.lines)
    if folded != seal.chunks:  # lost since they were counted
        raise InfrastructureError(f"the ledger has lost {seal.chunks - folded} of the run's {seal.chunks} chunks")
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
        report, lines = fold.finish(summaries, reopen, Path(scratch))
    if counter is not None:
        counter.add(lines)
    return report


class Finalisers:
    """At most one finalising process at a time, which a worker's attendant starts and ends.

    A run that could not be finalised is left to other workers, as long as one of them has not tried; then ``yields``
    asks another worker to tend for a while.
    """

    def __init__(self, settings: Settings, ledger: RunLedger, name: str, host: str = "") -> None:
        self._settings = settings
        self._ledger = ledger
        self._name = name
        self._host = host or identity.host()
        self._failures = Failures(ledger)
        self._process: subprocess.Popen[bytes] | None = None
        self._runs: Sequence[str] = ()
        self._at: tempfile._TemporaryFileWrapper[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.yields = False

    def start(self, sweeps: Sequence[str], runs: Sequence[str]) -> None:
        """Start with the first of ``sweeps`` left to the fleet, or with complete ``runs``, unless a process is busy."""
        if not self.idle():
            return
        others = self._others()
        mine = [run for run in runs if not self._leaves(run, others)]
        self.yields = len(mine) < len(runs)
        if some := sweeps[:1] or mine[:_MOST_RUNS]:
            if not sweeps:
                # Counted first: a report that kills its process is tried REPORT_TRIES times, not for ever. The process
                # counts those of the others.
                Reports(self._ledger, self._settings).begin(some[0])
            self._begin(some)

    def idle(self) -> bool:
        """Whether no process is busy. Reports a process that failed in the ledger."""
        if self._process is None:
            return True
        code = self._process.poll()
        if code is None:
            return False
        self._process, output = None, self._read_output()
        if not code:
            self._read_at()
        else:
            died = f"its process was ended by {signal_name(-code)}; is there enough memory?" if code < 0 else ""
            lines = [line for line in output.splitlines() if line.strip()]
            self._fail(died or (lines[-1] if lines else f"its process ended with exit code {code}"), output)
        return True

    def close(self) -> None:
        """End a busy process; its run is left to another worker."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._read_output()
        self._read_at()

    def _begin(self, runs: Sequence[str]) -> None:
        self._runs = runs
        try:
            if other := code_change("worker"):  # a new process would have that code, and skip the run
                self._fail(f"{other}: restart this worker")
                return
            self._output = tempfile.TemporaryFile(prefix="evalq-")  # noqa: SIM115 - read when the process has ended
            self._at = tempfile.NamedTemporaryFile(prefix="evalq-")  # noqa: SIM115 - the same
            self._process = subprocess.Popen(  # noqa: S603 - this program's own module
                child("evalq.workers.recovery.finaliser", self._at.name, *runs),
                env=without_secrets(os.environ),
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
            )
        except OSError as error:
            self._fail(f"its process cannot be started: {error}")
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended already; `idle` reports why
            # Through the pipe, because URLs hold passwords and every user of the host can read a process's arguments.
            self._process.stdin.write(self._settings.model_dump_json().encode())
            self._process.stdin.close()

    def _read_output(self) -> str:
        """The end of the process's output; can be read once."""
        if self._output is None:
            return ""
        with self._output as output:
            self._output = None
            # The last line has the reason of a failure.
            output.seek(max(0, output.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            return output.read().decode(errors="replace")

    def _read_at(self) -> str:
        """The run that the process was at, the first if it came to none; can be read once."""
        if self._at is None:
            return next(iter(self._runs), "")
        with self._at as at:
            self._at, number = None, int(at.seek(0, os.SEEK_END))
        return self._runs[max(0, min(number, len(self._runs)) - 1)]

    def _fail(self, reason: str, output: str = "") -> None:
        # The others of this process are tried again at once.
        run = self._read_at()
        log.warning("run %s is not finished here: %s", run, output.strip() or reason)
        self._failures.unreported(run, self._name, self._host, f"cannot make the report: {reason}")

    def _leaves(self, run: str, others: Set[str]) -> bool:
        """Whether this worker has failed at a run's report, and one of the ``others`` has not."""
        # By the ledger alone: a restart of the run deletes its failures, so this worker does not skip it for ever.
        failed = {name for name, last in self._failures.counts(run).workers.items() if last.kind == "report"}
        return self._name in failed and bool(others - failed)

    def _others(self) -> set[str]:
        """The other living workers of this code."""
        return Heartbeats(self._ledger.client).living(code_version()).keys() - {self._name}


def main(runs: Sequence[str], settings: Any, at: Callable[[], object] = lambda: None) -> int:
    """Finalise each of ``runs``, or begin the evaluation of a sweep left to the fleet; returns an exit code.

    Each run is announced by ``at``. The first failure ends the process: the last line of its output is the reason.
    """
    # The worker has checked these settings; reading the environment again could change them.
    chosen = Settings.model_construct(**settings)
    take_checks(chosen)
    identity.log_to_stderr()
    try:
        ledger = RunLedger(connect(chosen.ledger_address, chosen), chosen)
        left = UnattendedSweeps(SweepLedger(ledger.client, chosen), chosen)
        for number, run in enumerate(runs):
            at()
            if left.has(run):
                left.evaluate(run, RunLedger(ledger.client, chosen, identity.driver_token()))
                continue
            if number:
                Reports(ledger, chosen).begin(run)
            finalise(run, ledger, chosen)
    except (EvalqError, redis.RedisError, OSError) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        return error.exit_code if isinstance(error, EvalqError) else 1
    except SystemExit as error:  # by an evaluator: its code 0 would look like success
        sys.stderr.write(f"the evaluator ended its process by sys.exit({error.code!r})\n")
        return 1
    return 0


if __name__ == "__main__":
    with open(sys.argv[1], "ab", buffering=0) as _at:
        # A byte for each run: its worker counts them when this process has ended.
        _ended = main(sys.argv[2:], msgspec.json.decode(sys.stdin.buffer.read()), lambda: _at.write(b"."))
    sys.exit(_ended)
