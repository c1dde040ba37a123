"""`--follow`: evaluate a log again and again while it grows, reading only new lines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, asks_recorded
from evalq.evalcore.errors import Cancelled, EvalqError, InputError, Interrupted, NothingEvaluated, UsageError
from evalq.evalcore.model.canonical import Json, digest
from evalq.evalcore.records.traces.recording import Keeps
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.job import Job
from evalq.producer.folder.lock import LOCK, RunLock
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.follow.run import FollowPass, FollowRun, begin_following
from evalq.producer.follow.traces import FollowedTraces, folder_name
from evalq.producer.invocation.invocation import Invocation, command_line
from evalq.producer.invocation.options import on_command_line
from evalq.producer.lifecycle.finish import show
from evalq.producer.lifecycle.start import begin_or_join
from evalq.producer.monitor.progress import Reporter
from evalq.producer.outputs import write_output
from evalq.producer.run.backend import folder_error
from evalq.producer.run.publication import record_in_history
from evalq.producer.servers import Servers
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.settings import Settings

EVERY_SECONDS = 5.0
_POLL_SECONDS = 86_400.0
"""The system waits for 24 days at most."""
_AGAIN = "the same command again"


class _Stop:
    """A signal to end, which takes effect between two blocks of the log, and at once during a wait."""

    def __init__(self) -> None:
        self.signal = 0
        self._read, self._write = os.pipe()

    def __call__(self) -> bool:
        return bool(self.signal)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal."""
        poll = select.poll()  # select takes no file above number 1023
        poll.register(self._read, select.POLLIN)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not poll.poll(min(left, _POLL_SECONDS) * 1000):
            pass

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note a signal in the block; a second one interrupts at once. Ignored signals stay ignored."""
        numbers = signal.SIGINT, signal.SIGTERM
        before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}
        # Not KeyboardInterrupt at once, which would leave a block half counted.
        for number in before:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        os.write(self._write, b"!")


def follow_log(evaluator: Evaluator[Any, Any], request: Request, invocation: Invocation, reporter: Reporter) -> None:
    """Follow the log until its passes are over or a signal comes; also returns after SIGTERM.

    Raises Interrupted after Ctrl-C (130), NothingEvaluated without a report after the last pass, the errors of a run of
    the whole log, and UsageError for options that --follow does not support.
    """
    _refuse(invocation)
    settings = invocation.where.load()
    asked = invocation.start.options(settings.unpack_bytes)
    facts = {"suite": asked.suite, "tags": asked.tags, "command": command_line()}
    folder, params, request = begin_following(evaluator, request, asked.out, facts)
    stop = _Stop()
    try:
        with folder.driving() as mine, stop.listening():
            if not mine:
                raise UsageError(f"{folder.path}: another evalq process is following this log")
            run = FollowRun(folder, evaluator, params, request, stop)
            reporter.event("launch", run=folder.info().run, folder=str(folder.path))
            # Before the first pass, which takes long for a long log.
            folder.note(state="following")
            try:
                last = _follow(run, stop, settings, invocation, reporter)
                _refuse_cancelled(folder, stop)
            finally:
                if run.found or folder.being_cancelled():  # `evalq cancel` notes the end in the folder
                    with contextlib.suppress(OSError):
                        folder.note(state="stopped")
                else:
                    # The log was never there: there is nothing to resume.
                    folder.discard()
    except OSError as error:
        raise folder_error(error, folder, f"run {_AGAIN}") from error
    if stop.signal == signal.SIGINT:
        raise Interrupted(_AGAIN)
    if stop.signal:
        reporter.say(f"ended by SIGTERM at byte {last.position:,}, all of it kept; resume with {_AGAIN}")
        return
    if last.report is None:
        raise NothingEvaluated(f"nothing was evaluated: no records in {request.inputs[0]}")
    show(folder, last.report, request.options, msgspec.structs.replace(invocation.output, outputs=()))
    reporter.event("done", run=folder.info().run, folder=str(folder.path), records=last.report["records"])
    reporter.say(f"run {folder.info().run}: {folder.path}")


# Traces: every window of whole ones is a run of its own, in the same suite.

_TRACES_EVERY_SECONDS = 60.0
_SETTLE_SECONDS = 30.0
_SHOWN = 20


def follow_traces(evaluator: Evaluator[Any, Any], request: Request, invocation: Invocation, reporter: Reporter) -> None:
    """Make a run of the traces that came, again and again, until the passes are over or a signal comes.

    Raises Interrupted after Ctrl-C (130), the errors of a run, and UsageError for options that --follow does not
    support.
    """
    given = [str(path) for path in request.options.get("traces") or ()]
    if not given:
        raise UsageError("--follow needs --traces FILE: the file that a Collector appends to")
    _refuse(invocation, ("detach", "once", "limit", "dry_run"))
    assert evaluator.command.traces is not None, "the option is only there with it"
    keeps = evaluator.command.traces(request)
    name = folder_name(given, {"inputs": request.inputs, **request.options}, digest)
    folder = invocation.start.out or RUNS / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder}: a file is in the way of the run folder; name another with --run-dir") from None
    stop, lock = _Stop(), RunLock.take(folder / LOCK)
    if lock is None:
        raise UsageError(f"{folder}: another evalq process is following these traces")
    try:
        with stop.listening():
            _windows(evaluator, request, (folder, given, keeps), stop, invocation, reporter)
    finally:
        lock.release(remove=True)
        with contextlib.suppress(OSError):
            folder.rmdir()  # only if it is empty: nothing was read
    if stop.signal == signal.SIGINT:
        raise Interrupted(_AGAIN)
    if stop.signal:
        reporter.say(f"ended by SIGTERM; resume with {_AGAIN}")


def _windows(
    evaluator: Evaluator[Any, Any],
    request: Request,
    what: tuple[Path, list[str], Keeps],
    stop: _Stop,
    invocation: Invocation,
    reporter: Reporter,
) -> None:
    """One window after another."""
    folder, given, keeps = what
    settle = invocation.following.settle
    traces = FollowedTraces(folder, given, _SETTLE_SECONDS if settle is None else settle, keeps)
    number, every = 0, invocation.following.every or _TRACES_EVERY_SECONDS
    passes, beat = invocation.following.passes, _Heartbeat(evaluator.name, invocation, traces, reporter)
    reporter.say(f"following {', '.join(given)}: {folder}")
    while True:
        number += 1
        began, count = time.monotonic(), traces.gather(time.time())
        for line in traces.news[:_SHOWN]:
            reporter.warn(visible(line))
        for window in traces.pending():
            results = _run_window(evaluator, request, traces, window, invocation, reporter)
            traces.evaluated(window, results, time.time())
        waiting = f", {len(traces.state.waiting):,} are waiting" if traces.state.waiting else ""
        if count or passes:
            reporter.say(f"{count:,} new traces{waiting}")
        reporter.event("pass", number=number, traces=count, waiting=len(traces.state.waiting),
                       window=traces.state.window, late=traces.state.late)  # fmt: skip
        if stop() or number == passes:
            beat(0.0)
            return
        beat(every)
        stop.wait(max(every - (time.monotonic() - began), 0.1))
        if stop():
            beat(0.0)
            return


class _Heartbeat:
    """Records each pass in the ledger, for the exporter. Reports once why it cannot."""

    def __init__(self, evaluator: str, invocation: Invocation, traces: FollowedTraces, reporter: Reporter) -> None:
        self._settings, self._traces, self._reporter = invocation.where.load(), traces, reporter
        self._of = evaluator, invocation.start.options(self._settings.unpack_bytes).suite
        self._reason = ""

    def __call__(self, every: float) -> None:
        """Record a pass; ``every``: seconds to the next one, or 0 if this process makes no other."""
        if not self._settings.broker:
            return
        import redis  # not before it is needed: following without a server never does

        from evalq.workers.ledger.heartbeats import FollowerFacts
        from evalq.workers.processes.identity import host

        state, (evaluator, suite) = self._traces.state, self._of
        counts = {name: float(value) for name, value in msgspec.structs.asdict(state.totals).items() if name != "lag"}
        counts |= {name: float(getattr(state, name)) for name in ("late", "unread", "removed")}
        facts = FollowerFacts(host(), evaluator, suite, every, len(state.waiting), counts, state.totals.lag)
        try:
            with Servers(self._settings) as servers:
                servers.heartbeats.beat_follower(state.id, facts)
            self._reason = ""
        except (redis.RedisError, EvalqError, OSError) as error:
            if not self._reason:
                self._reporter.say(f"this pass is not in the metrics: {error}; each pass tries again")
            self._reason = str(error)


def _run_window(
    evaluator: Evaluator[Any, Any], request: Request, traces: FollowedTraces, window: int, invocation: Invocation,
    reporter: Reporter,
) -> Mapping[str, Json]:  # fmt: skip
    """The results of a window's run. If a process was killed during it, that run is finished."""
    path = traces.window_path(window)
    # A window need not have every attribute.
    options = {**request.options, "outputs": (str(path),), "window": window}
    windowed = msgspec.structs.replace(request, options=options)
    start = msgspec.structs.replace(
        invocation.start,
        out=None,
        once=f"{traces.state.id or path.parent.parent} {window}",
        tags=(*invocation.start.tags, f"window={window}"),
    )
    backend = invocation.backend()
    if not backend.settings.broker and not invocation.where.workers:
        backend = msgspec.structs.replace(backend, inline=True)
    asked = start.options(backend.settings.unpack_bytes)
    live = asks_recorded(evaluator, windowed)
    if live:
        begin: Callable[[], Job | Sweep] = lambda: Sweep.start(evaluator, windowed, invocation.live.options(), asked)  # noqa: E731
    else:
        begin = lambda: Job.start(evaluator, windowed, asked)  # noqa: E731
    folder = begin_or_join(begin, backend, reporter, detach=False)
    if folder is None:
        return {}
    report = folder.report()
    for output in invocation.output.outputs:
        write_output(output, folder, evaluator, windowed.options)
    reporter.event("done", run=folder.info().run, folder=str(folder.path), records=report["records"])
    reporter.say(visible(_headline(report)))
    results: Any = report["results"]
    return dict(results)


def _headline(report: dict[str, Json]) -> str:
    results: Any = report["results"]
    outputs, interval = results.get("outputs", {}), results.get("pass_rate_interval") or {}
    if results.get("pass_rate") is None or interval.get("low") is None:
        return f"no verdict on {outputs.get('total', 0):,} traces"
    low, high = (100 * interval[key] for key in ("low", "high"))
    rate = f"{100 * results['pass_rate']:.1f} % ({low:.1f} to {high:.1f})"
    return f"pass rate {rate}: {outputs['passed']:,} of {outputs['total']:,} traces, {outputs['errors']:,} errors"


def _refuse_cancelled(folder: RunFolder, stop: _Stop) -> None:
    """Raise Cancelled if the signal came from `evalq cancel`."""
    if stop.signal and folder.being_cancelled():
        run = folder.info().run
        raise Cancelled(f"run {run} was cancelled by evalq cancel; its results so far are in {folder.path}")


def _follow(run: FollowRun, stop: _Stop, settings: Settings, invocation: Invocation, reporter: Reporter) -> FollowPass:
    """Run one pass after another; returns the last one."""
    memory = _Memory(settings, reporter)
    asked = invocation.following
    log, every, most = run.request.inputs[0], asked.every or EVERY_SECONDS, asked.passes
    if run.begun_anew:
        reporter.say(
            f"{run.folder.path}: another version of evalq began this run, so evalq reads {log} from its beginning"
        )
    if asked.verify:
        run.verify()
    waited, number = False, 0
    while True:
        began, number = time.monotonic(), number + 1
        last = run.run_pass()
        _passed(run, last, number, invocation, reporter)
        memory.keep(run, last, time.monotonic() - began)
        if not run.found and number == most:
            raise InputError("no input", [(log, "no such file")])
        if stop() or number == most:
            return last
        if not run.found and not waited:
            reporter.say(visible(f"waiting: {log} is not there yet"))
            waited = True
        # A log that has to be sorted takes long, and would otherwise be sorted without a pause.
        took = time.monotonic() - began
        stop.wait(max(every - took, took))
        if stop():
            return last


class _Memory:
    """The followed run's entry in the history of its suite; each pass replaces it."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._kept = False
        self._reason = ""

    def keep(self, run: FollowRun, found: FollowPass, seconds: float) -> None:
        """Record a pass of ``seconds``, or one that could not be recorded before; reports once why it cannot."""
        if found.report is None or (self._kept and not found.lines):
            return
        with Servers(self._settings) as servers:
            missing = record_in_history(run.folder, run.evaluator, found.report, round(seconds, 3), servers)
        self._kept = not missing
        if missing and not self._reason:
            self._reporter.say(f"{missing}; each pass tries again")
        self._reason = missing


def _passed(run: FollowRun, found: FollowPass, number: int, invocation: Invocation, reporter: Reporter) -> None:
    """Report a pass, and write the files of -o."""
    facts = {key: getattr(found, key) for key in ("lines", "bytes", "read", "again", "position", "waiting")}
    reporter.event("pass", number=number, **facts)
    # The first pass writes them also without a new line: -o may not have been asked for before.
    if found.report is not None and (found.lines or number == 1):
        for path in invocation.output.outputs:
            write_output(path, run.folder, run.evaluator, run.request.options)
    if found.lines or invocation.following.passes:
        again = f", {found.again:,} bytes read again" if found.again else ""
        waiting = f", {found.waiting:,} bytes of an unfinished line wait" if found.waiting else ""
        reporter.say(f"{found.lines:,} new lines up to byte {found.position:,}{again}{waiting}")


def _refuse(invocation: Invocation, only: Collection[str] = ()) -> None:
    """Raise UsageError for options of runs that a queue computes; ``only``: for some of them."""
    start = invocation.start
    asked = {
        "workers": invocation.where.workers,
        "detach": start.detach,
        "once": start.once,
        "limit": start.limit,
        "chunk_size": start.chunk_size,
        "dry_run": start.dry_run,
    }
    named = next((name for name, value in asked.items() if value and (not only or name in only)), "")
    if named and only:
        raise UsageError(f"--follow makes runs of what comes: omit --{named.replace('_', '-')}")
    if named:
        flag = "--" + named.replace("_", "-")
        variable = f"EVALQ_{named.upper()}"
        raise UsageError(f"--follow computes all of the log in this process: omit {flag} (or unset {variable})")
    if not only and on_command_line("priority"):  # its variable may be there for other runs
        raise UsageError("--follow computes in this process, and waits in no queue: omit --priority")
