"""A handle: a run on a fleet, as any program sees it that knows the run's id and its server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from evalq._run import Run, open_run
from evalq.evalcore.errors import (
    AlreadyRunning,
    BrokerUnreachable,
    Cancelled,
    Incomplete,
    Paused,
    UsageError,
    WaitTimeout,
)
from evalq.evalcore.model.life import RunState
from evalq.producer.monitor.progress import Reporter

if TYPE_CHECKING:
    from evalq._compare import Decision, Operand
    from evalq.producer.folder.run_folder import RunFolder
    from evalq.producer.servers import Servers
    from evalq.workers.settings import Settings

__all__ = ["FleetProgress", "Handle", "apart", "connect", "named_settings", "runs", "served", "silent"]

T = TypeVar("T")
log = logging.getLogger("evalq")

_PAUSES = 0.02, 1.0
"""Seconds between two looks at a run that is waited for: at first, and after a while."""
_UNDER_WAY: frozenset[RunState] = frozenset({"open", "calling", "called", "detached", "retrying"})
_MOST_SERVERS = 8


class FleetProgress(NamedTuple):
    """How far a run is, at one moment.

    ``done`` of ``total`` pieces are done: chunks, or live calls while ``unit`` is "calls". ``total`` grows while the
    run is planned. ``records`` counts evaluated records. ``reason`` says why a run failed or was ended; else empty.
    """

    state: RunState
    done: int
    total: int
    unit: Literal["chunks", "calls"] = "chunks"
    records: int = 0
    reason: str = ""

    @property
    def share(self) -> float:
        """``done`` of ``total``, from 0 to 1; 0 while nothing is planned."""
        return self.done / self.total if self.total else 0.0


class _Silent(Reporter):
    """Prints nothing: a program's streams are its own. Warnings go to the logger "evalq"."""

    def __init__(self) -> None:
        super().__init__("records", quiet=True, bar=False, json_lines=False)

    def warn(self, text: str) -> None:
        log.warning("%s", text)


def silent() -> Reporter:
    """A reporter for code that runs inside of somebody's program."""
    return _Silent()


def apart(work: Callable[[], T]) -> T:
    """Do ``work`` in a thread of its own if this is the main one: it must change no signal handler of the program.

    An interrupt ends the wait, not the work.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="evalq-submit")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


# -- connections: one a thread, made anew after a fork -----------------------------------------------

_local = threading.local()


@contextlib.contextmanager
def served(settings: Settings) -> Iterator[Servers]:
    """This thread's connection to the servers of ``settings``; errors of servers are evalq's own in the block."""
    from evalq.producer.servers import Servers
    from evalq.workers.servers.errors import SERVER_ERRORS, explained

    # By the process, too: a forked child must not use its parent's connections.
    if getattr(_local, "pid", None) != os.getpid():
        _local.pid, _local.known = os.getpid(), {}
    key = settings.model_dump_json()
    if key not in _local.known:
        if len(_local.known) >= _MOST_SERVERS:
            _local.known.popitem()[1].close()
        _local.known[key] = Servers(settings)
    try:
        yield _local.known[key]
    except SERVER_ERRORS as error:
        raise explained(error, f"the server at {settings.ledger_address}") from error


class _Seen(NamedTuple):
    """A run by the ledger: its progress, and whether only its report is left to make."""

    progress: FleetProgress
    complete: bool = False


def _seen(run: str, servers: Servers) -> _Seen | None:
    """What the ledger says of a run; None if it does not know it."""
    from evalq.workers.recovery.unattended import UnattendedSweeps

    with contextlib.suppress(Incomplete):
        status = servers.runs.poll(run)
        found = status.progress
        state, reason = cast("RunState", found.state), found.reason
        if status.unreported or (state == "done" and not status.reported and status.driver):
            state = "open"  # its report is being made
        elif status.detached and found.complete and not status.reported and state in ("open", "done"):
            state, reason = "failed", "no worker could make its report: see evalq status RUN"
        complete = status.detached and found.complete and not status.reported
        return _Seen(FleetProgress(state, found.committed, found.chunks, "chunks", found.records, reason), complete)
    sweep, header = servers.sweeps.poll(run), servers.sweeps.header(run)
    if sweep is None or header is None:
        return None
    state = cast("RunState", sweep.state)
    if state in ("open", "done") or (state == "spent" and UnattendedSweeps(servers.sweeps, servers.settings).has(run)):
        state = "calling" if sweep.left or sweep.busy else "called"
    return _Seen(FleetProgress(state, sweep.recorded, header.total, "calls", 0, sweep.reason))


class Handle:
    """A run on a fleet. `submit`, `submit_sweep`, `connect` and `runs` give handles; many may be of one run.

        handle = evalq.submit("planagent", rows, broker="redis://localhost:6379/0")
        handle.progress().share                # 0.25
        run = handle.run(timeout=60)           # or, in a coroutine: run = await handle

    ``id`` names the run for `connect`, in any process that reaches its server. ``path`` is its run folder on this
    machine, None if that is elsewhere. Threads may share a handle, and so may processes after a fork.

    Methods that ask the server raise BrokerUnreachable and ServerRefused, and Incomplete if the server does not know
    the run any more: it keeps a run for ``keep_days`` after its last step, or until `evalq prune`.
    """

    def __init__(self, run: str, settings: Settings, folder: RunFolder | None) -> None:
        """Handles come from evalq.submit and evalq.connect."""
        self.id = run
        self._settings = settings
        self._folder = None if folder is None else type(folder)(folder.path.absolute())

    @property
    def path(self) -> Path | None:
        """The run folder on this machine."""
        return None if self._folder is None else self._folder.path

    def state(self) -> RunState:
        """How the run stands: "open", "calling" or "called" while the fleet works, then "done", or another state of
        docs/reference/life.md. A run is "done" once it has its report.
        """
        return self.progress().state

    def progress(self) -> FleetProgress:
        """How far the run is: see `FleetProgress`."""
        return self._look().progress

    def _look(self) -> _Seen:
        with served(self._settings) as servers:
            found = _seen(self.id, servers)
        if found is not None:
            return found
        if self._folder is not None and self._folder.begun:
            info = self._folder.info()
            if info.state not in _UNDER_WAY:  # it ended here, and the server has forgotten it
                return _Seen(FleetProgress(info.state, 0, 0))
        server = self._settings.ledger_address
        raise Incomplete(f"the server at {server} does not know run {self.id} (expired, or pruned)")

    def wait(self, timeout: float | None = None) -> RunState:
        """Wait until the fleet has nothing left to do, at most ``timeout`` seconds; returns the state then.

        "done", "failed", "paused", "cancelled" or "spent" say how it ended; another state says that the time is over.
        A server that does not answer is waited for, ``patience_seconds`` long.
        """
        looks = _Looks(self, timeout)
        while (state := looks.look()) is None:
            time.sleep(looks.pause())
        return state

    def run(self, timeout: float | None = None) -> Run:
        """Wait as `wait` does, and return the finished `Run`.

        On the machine that submitted the run its answers are brought into the run folder, so that `Run.records` works.
        Elsewhere the report is, into ./evalq-runs/<run id>; the records stay where they are.

        Raises WaitTimeout (a TimeoutError) if the time is over, Cancelled, Paused, and Incomplete for a run that
        failed, with the reason.
        """
        looks = _Looks(self, timeout, here=True)
        while (state := looks.look()) is None:
            time.sleep(looks.pause())
        return self._finished(state)

    def __await__(self) -> Generator[Any, None, Run]:
        """`run` without a time limit, in a coroutine. Use `asyncio.wait_for` or `asyncio.timeout` for a limit."""
        return self._awaited().__await__()

    async def _awaited(self) -> Run:
        looks = _Looks(self, None, here=True)
        # In a thread, since a look blocks; it holds no thread while it waits.
        while (state := await asyncio.to_thread(looks.look)) is None:
            await asyncio.sleep(looks.pause())
        return await asyncio.to_thread(self._finished, state)

    def gate(
        self,
        policy: str | Path | Mapping[str, Any],
        *,
        baseline: Operand | None = None,
        candidate: str = "",
        timeout: float | None = None,
    ) -> Decision:
        """Wait as `run` does, and decide by a policy whether the run may pass: what `evalq.gate` decides."""
        from evalq._compare import gate

        run, at = self.run(timeout), self._settings
        return gate(run, policy, baseline=baseline, candidate=candidate, broker=at.broker, ledger=at.ledger or None)

    def pause(self) -> RunState:
        """Let the fleet take no more of the run, until `resume`; returns "paused".

        Raises UsageError for a run that has ended.
        """
        return self._close("paused")

    def cancel(self) -> RunState:
        """End the run for good; returns "cancelled". Raises UsageError for a run that is done."""
        return self._close("cancelled")

    def resume(self) -> RunState:
        """Let the fleet go on with a paused run; returns "open". Raises UsageError for a run that is not paused."""
        from evalq.producer.lifecycle.join import launch_again
        from evalq.producer.run.backend import Backend

        with served(self._settings) as servers:
            states = {servers.runs.proceed(self.id), servers.sweeps.proceed(self.id)} - {"gone"}
        if "open" in states:
            self._note("detached")
            return "open"
        now = self.state()
        # A producer has left it, not to the fleet: from its folder it can be.
        if now != "paused" or self._folder is None:
            then = "; resume it where its run folder is" if now == "paused" else ""
            raise UsageError(f"{self.id} cannot be resumed: it is {now}{then}")
        apart(partial(launch_again, self._folder, Backend(self._settings), silent()))
        return self.state()

    def __repr__(self) -> str:
        return f"<evalq handle {self.id}>"

    def _close(self, state: Literal["paused", "cancelled"]) -> RunState:
        from evalq.producer.lifecycle.cancel import close

        with served(self._settings) as servers:
            now = close(servers, self.id, state)
        if now == "gone":
            return self.progress().state  # raises if nobody knows it
        if now != state:
            raise UsageError(f"{self.id} cannot be {state}: it is {now}")
        self._note(state)
        return state

    def _note(self, state: RunState) -> None:
        """Note the state in the run folder, if that is here and no process drives the run there."""
        from evalq.evalcore.model.life import may_follow

        folder = self._folder
        if folder is None or not folder.begun:
            return
        with contextlib.suppress(OSError), folder.driving() as mine:
            before = folder.info().state
            # From "paused" back to the fleet: through the state in which a command would resume it.
            if mine and state == "detached" and before == "paused":
                folder.note(state="open")
                folder.note(state="detached")
            elif mine and may_follow(state, before):
                folder.note(state=state)

    def _finished(self, state: RunState) -> Run:
        found, complete = self._look()
        if complete and self._is_here():
            return apart(self._joined)
        if state == "cancelled":
            raise Cancelled(f"run {self.id} was cancelled {found.reason}".rstrip())
        if state == "paused":
            raise Paused(f"run {self.id} was paused; resume it with: evalq.connect({self.id!r}, broker=...).resume()")
        if state in _UNDER_WAY:
            raise WaitTimeout(f"run {self.id} is {state} ({found.done:,} of {found.total:,} {found.unit}); it goes on")
        if state == "done" and self._is_here():
            return apart(self._joined)
        if state != "done":
            raise Incomplete(f"run {self.id} is {state}: {found.reason}".rstrip(": "))
        return self._fetched()

    def _is_here(self) -> bool:
        return self._folder is not None and self._folder.begun

    def _joined(self) -> Run:
        """The run in its folder here, with the fleet's answers. The report is made here if no worker has made it."""
        from evalq.producer.lifecycle.join import join, resume_any
        from evalq.producer.run.backend import Backend

        assert self._folder is not None
        backend, reporter = Backend(self._settings), silent()
        with served(self._settings) as servers:
            # Not waiting for a worker to make the report; a second one makes the same.
            with contextlib.suppress(AlreadyRunning, UsageError):
                if self._folder.info().state == "detached" and self._look().complete:
                    resume_any(self._folder, backend, reporter)
            join(self._folder, servers, reporter, lambda left: resume_any(left, backend, reporter))
        return open_run(self._folder.path)

    def _fetched(self) -> Run:
        """The run with the report that the ledger has."""
        from evalq.producer.folder.files import RUNS
        from evalq.producer.lifecycle.fetch import fetch

        with served(self._settings) as servers:
            folder = fetch(self.id, RUNS / self.id, servers.runs, self._settings)
        if folder is None:
            raise Incomplete(f"run {self.id} is done, and the server has no report of it: see its run folder")
        return open_run(folder.path)


class _Looks:
    """Looks at a run that is waited for, ever less often."""

    def __init__(self, handle: Handle, timeout: float | None, *, here: bool = False) -> None:
        """``here``: until only a report is left that can be made in the run folder here."""
        self._here = here and handle._is_here()
        given: Any = timeout
        if given is not None and not (isinstance(given, int | float) and given >= 0):
            raise UsageError(f"timeout={given!r:.100}: seconds, 0 or more")
        self._handle = handle
        self._until = None if timeout is None else time.monotonic() + timeout
        self._pause, self._longest = _PAUSES
        self._away: float | None = None

    def look(self) -> RunState | None:
        """The state to return now; None to look again later."""
        try:
            (state, *_), complete = self._handle._look()
            self._away = None
        except BrokerUnreachable:
            now = time.monotonic()
            self._away = self._away or now
            patient = now - self._away < self._handle._settings.patience_seconds
            if not patient or (self._until is not None and now >= self._until):
                raise
            return None
        over = self._until is not None and time.monotonic() >= self._until
        ended = state not in _UNDER_WAY or (complete and self._here)
        return state if over or ended else None

    def pause(self) -> float:
        """How long to wait until the next look."""
        pause = self._pause
        self._pause = min(1.3 * pause, self._longest)
        return pause if self._until is None else max(0.0, min(pause, self._until - time.monotonic()))


def connect(
    run: str, *, broker: str | None = None, ledger: str | None = None, settings: str | Path | None = None
) -> Handle:
    """The handle of a run on a server, in any process: its id is enough.

        evalq.connect("vs-golden-1128-2215-abcdef", broker="redis://localhost:6379/0").state()

    ``broker`` and ``ledger`` are URLs as for `evaluate`; without them EVALQ_BROKER and EVALQ_LEDGER count.
    ``settings`` is a YAML file. Raises UsageError for an id that the server does not know, and without a server;
    BrokerUnreachable, ServerRefused, ConfigError.
    """
    from evalq.evalcore.naming import is_text

    given: Any = run  # no checker has seen what a notebook passes
    if not (isinstance(given, str) and given and is_text(given)):
        raise UsageError(f"connect({given!r:.100}): the id of a run is a text")
    chosen = named_settings(settings, broker, ledger, "connect")
    with served(chosen) as servers:
        known = servers.knows(run)
    folder = _folder_here(run)
    if not known and folder is None:
        raise UsageError(f"the server at {chosen.ledger_address} knows no run {run!a} (expired, pruned, or elsewhere)")
    return Handle(run, chosen, folder)


def runs(
    *,
    state: RunState | Literal[""] = "",
    broker: str | None = None,
    ledger: str | None = None,
    settings: str | Path | None = None,
) -> list[Handle]:
    """The handles of all runs that a server knows, by their ids' order; with ``state``, of those in that state now.

        [handle.id for handle in evalq.runs(state="failed", broker=URL)]

    The other arguments are those of `connect`, as are the errors.
    """
    from typing import get_args

    if state and state not in get_args(RunState):
        raise UsageError(f"state={state!r:.100}: one of {', '.join(get_args(RunState))}")
    chosen = named_settings(settings, broker, ledger, "runs")
    found = []
    with served(chosen) as servers:
        calling = (name for name in servers.sweeps.names() if "." not in name)
        for run in sorted({*servers.runs.runs(), *calling}):
            seen = _seen(run, servers) if state else None
            if not state or (seen is not None and seen.progress.state == state):
                found.append(run)
    return [Handle(run, chosen, _folder_here(run)) for run in found]


def named_settings(file: str | Path | None, broker: str | None, ledger: str | None, who: str, **more: Any) -> Settings:
    """The settings of a function that needs a server. Raises UsageError without one."""
    from evalq.workers.settings import load_settings

    chosen = load_settings(file or os.environ.get("EVALQ_SETTINGS"), broker=broker, ledger=ledger, **more)
    if not chosen.broker:
        raise UsageError(f"{who} needs a fleet's server: {who}(..., broker=URL), or EVALQ_BROKER")
    return chosen


def _folder_here(run: str) -> RunFolder | None:
    """The folder of a run in ./evalq-runs; None if it is elsewhere."""
    from evalq.producer.folder.files import RUNS
    from evalq.producer.folder.run_folder import RunFolder

    # An id is no path: it must not lead out of that folder.
    if "/" in run or "\0" in run or run in (".", ".."):
        return None
    folder = RunFolder(RUNS / run)
    with contextlib.suppress(Exception):  # of another program, or damaged: the server knows the run
        if folder.begun and folder.info().run == run:
            return folder
    return None
