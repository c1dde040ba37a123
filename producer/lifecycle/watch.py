"""Watch a run that another process drives, or that was left to a fleet, without changing it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Literal, cast

from evalq.evalcore.errors import Cancelled, EvalqError, Incomplete, UsageError
from evalq.evalcore.model.life import CALLS_OVER, LEFT_ALONE, RunState, next_step
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.no_workers import another_version
from evalq.producer.monitor.progress import Reporter, ShownProgress
from evalq.producer.servers import Servers, named_servers

POLL_SECONDS = 0.2
_QUIET_SECONDS = 5.0


class Unwatched(EvalqError):
    """Ended by Ctrl-C while only watching: the run goes on."""

    exit_code = 130

    def __init__(self, run: object) -> None:
        super().__init__(f"no longer watching; the run goes on: see it with: evalq watch {run}")


@contextlib.contextmanager
def only_watching(run: object) -> Iterator[None]:
    """A block in which Ctrl-C ends only the watching; it raises Unwatched then."""
    try:
        yield
    except KeyboardInterrupt:
        raise Unwatched(run) from None


def watch_driver(folder: RunFolder, reporter: Reporter, fleet: Callable[[], str] = str) -> bool:
    """Show a run's progress until no process drives it here any more; returns whether one did.

    ``fleet`` describes the fleet, for the first line. Raises Unwatched at Ctrl-C.
    """
    by = folder.driver()
    if not by:
        return False
    with only_watching(folder.named(folder.info().server)), reporter.watching() as seen:
        reporter.say("; ".join(filter(None, (f"{folder.path}: driven by {by}", "waiting for its report", fleet()))))
        while folder.driver():
            with contextlib.suppress(EvalqError):  # it may go at any moment
                seen(_status_in(folder))
            time.sleep(POLL_SECONDS)
    return True


def _status_in(folder: RunFolder) -> ShownProgress:
    progress = folder.info().progress
    done, chunks = int(progress.get("committed", 0)), int(progress.get("chunks", 0))
    return ShownProgress(done, done, chunks, unit="chunks")


def ledger_state(run: str, servers: Servers) -> RunState | Literal[""]:
    """The state of a run in the ledger, or of its calls until they are over; empty if the ledger knows neither."""
    with contextlib.suppress(Incomplete):
        return cast("RunState", servers.runs.poll(run).progress.state)
    # Calls that are over are not yet a report: the run goes on.
    look = servers.sweeps.poll(run)
    return "" if look is None else "open" if look.state in CALLS_OVER else cast("RunState", look.state)


def attend_fleet(run: str, servers: Servers, reporter: Reporter, folder: RunFolder | None = None) -> None:
    """Wait while workers and callers have work for a run that was left to them.

    If its ``folder`` is here, wait until a process drives it there, or only the report of a complete run is missing,
    which can be made without them. Raises Unwatched at Ctrl-C, UsageError without a broker, Cancelled, and Incomplete
    for a run that was paused or failed.
    """
    if not servers.named:
        raise UsageError(f"run {run} was left to a fleet: name its server with --broker URL (or EVALQ_BROKER)")

    from evalq.producer.driving.retries import ServerRetry

    _ = servers.client  # connect now: do not wait for a server that is not there at the start
    announced, server, due = "", named_servers(servers.settings), time.monotonic() + _QUIET_SECONDS
    watched, retry = (
        f"{run} {server}" if folder is None else folder.named(server),
        ServerRetry(servers.settings, reporter),
    )
    with only_watching(watched), reporter.watching() as seen, retry.reporting():
        while folder is None or not folder.driver():
            state = retry(lambda: ledger_state(run, servers))
            if state == "cancelled":
                raise Cancelled(f"run {run} was cancelled; {_then(state, folder, server)}")
            if state in LEFT_ALONE:
                raise Incomplete(f"run {run} is {state}; {_then(state, folder, server)}")
            status = retry(lambda: _busy(run, servers, folder is not None))
            if status is None:
                return
            seen(status)
            # Seldom, since it reads every heartbeat of the fleet.
            if time.monotonic() > due:
                due = time.monotonic() + _QUIET_SECONDS
                why = retry(lambda: _unserved(run, servers))
                if why not in ("", announced):
                    announced = why
                    reporter.say(f"waiting: {why}")
            time.sleep(POLL_SECONDS)


def _then(state: RunState, folder: RunFolder | None, server: str) -> str:
    """The next step for a run in this ``state``; if its folder is elsewhere, the step there."""
    if folder is None:
        return f"its folder is elsewhere: there, {next_step(state, f'FOLDER {server}')}"
    return next_step(state, folder.named(server))


def _busy(run: str, servers: Servers, here: bool) -> ShownProgress | None:
    """The fleet's progress on a run; None if the fleet has nothing left to do, or only a report that no worker is there
    to make and that can be made ``here``.
    """
    from evalq.workers.recovery.unattended import UnattendedSweeps

    ledger, calls = servers.runs, servers.sweeps
    with contextlib.suppress(Incomplete):
        look = ledger.poll(run)
        busy = (look.unreported and (not here or _living(run, servers))) or (
            look.progress.state == "open" and not look.progress.complete
        )
        done = look.progress.committed
        return ShownProgress(done, done, look.progress.chunks, unit="chunks") if busy else None
    sweep, header = calls.poll(run), calls.header(run)
    if sweep is None or header is None:
        return None
    calling = sweep.state == "open" and (sweep.left or sweep.busy > 0)
    if not calling and UnattendedSweeps(calls, servers.settings).find(run) is None:
        return None  # it must be evaluated here
    if sweep.state in CALLS_OVER and not (sweep.known or sweep.waiting or sweep.busy or sweep.unsettled):
        return None  # there is nothing to evaluate: the next driver says why
    return ShownProgress(sweep.recorded, sweep.recorded, header.total, unit="calls")


def _living(run: str, servers: Servers) -> bool:
    """Whether a living worker could make a run's report."""
    header = servers.runs.header(run)
    return header is not None and bool(servers.heartbeats.living(header.code_version))


def _unserved(run: str, servers: Servers) -> str:
    """Why no process works on a run, and what to start; empty if one can."""
    living, server = servers.heartbeats, named_servers(servers.settings)
    if not (living.workers() or living.callers()):
        return f"no worker is there for it (start one: evalq worker {server})"
    header, calls = servers.runs.header(run), servers.sweeps.header(run)
    if header is not None:
        workers, others, lacking = living.serving(header.code_version, header.evaluator)
        if workers:
            return ""
        if others:
            return another_version(header.code_version, others, header.evaluator if lacking else "")
        return f"no worker is there for it (start one: evalq worker {server})"
    look = servers.sweeps.poll(run)
    if (
        calls is None
        or look is None
        or not look.left
        or any(each.code == calls.code for each in living.callers().values())
    ):
        return ""
    return f"no process of code {calls.code} makes calls (start one: evalq worker --calls N --targets FILE {server})"
