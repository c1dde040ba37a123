"""Join a run that another process drives, take it over when that process is gone, and retry failed parts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from evalq.evalcore.contract.partial import decode
from evalq.evalcore.errors import (
    AlreadyRunning,
    Cancelled,
    EvalqError,
    Finished,
    Incomplete,
    InfrastructureError,
    UsageError,
)
from evalq.evalcore.model.life import CALLS_OVER, LEFT_ALONE, RunState, may_follow
from evalq.evalcore.views.markdown import plural
from evalq.producer.folder.job import Job
from evalq.producer.folder.journal import KeptAnswers, answers
from evalq.producer.folder.manifest import resumable_by
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle.watch import POLL_SECONDS, attend_fleet, ledger_state, only_watching, watch_driver
from evalq.producer.monitor.progress import Reporter
from evalq.producer.outputs import records_of
from evalq.producer.servers import Servers
from evalq.producer.sweep.head import holds_sweep, in_calls, leave_to_others
from evalq.producer.sweep.judge_stage import judge_sweeps
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.processes.identity import is_gone

if TYPE_CHECKING:
    from evalq.producer.run.backend import Backend
    from evalq.workers.ledger.progress import RunStatus
    from evalq.workers.ledger.sweep_model import SweepStatus


T = TypeVar("T")
_ORPHANED_AFTER = 3
"""A sweep that is done and not evaluated for so many times `driver_seconds` has lost its driver. Between the two, a
driver writes all outputs, imports and plans without a sign of life, for ten seconds on a busy machine."""


def ended_error(folder: RunFolder, state: RunState) -> EvalqError:
    """The error for a run that nobody drives and that has no report."""
    if state == "cancelled":
        return Cancelled(f"{folder.path}: this run was cancelled for good; {folder.next_step(state)}")
    then = resumable_by(folder) or folder.next_step(state)
    return Incomplete(f"{folder.path}: this run is {state}, and no process drives it; {then}")


def join(folder: RunFolder, servers: Servers, reporter: Reporter, drive: Callable[[RunFolder], T]) -> T | None:
    """Bring a run that was begun before to its report: watch while another process drives it, otherwise ``drive`` it.

    Returns the result of ``drive``, or None if another process made the report, which is in the folder then. Raises
    the errors of ``drive``, `ended_error` if the other driver left the run without a report, and FileNotFoundError if
    the folder is gone, as after faulty input.
    """
    waited = False
    while True:
        waited |= watch_driver(folder, reporter)
        if not folder.begun:
            raise FileNotFoundError(folder.path)
        state = folder.info().state
        if state == "done":
            return None
        if state == "cancelled" or (waited and state in LEFT_ALONE):
            raise ended_error(folder, state)
        if state == "detached":
            attend_fleet(folder.info().run, servers, reporter, folder)
        try:
            return drive(folder)
        except UsageError:
            if folder.info().state != "done":
                raise
            return None  # another waiting process was faster and has finished it
        except AlreadyRunning as driven:
            # A faster process on this host: wait for it. On another host: follow it by the ledger.
            if not folder.driver() and driven.run != str(folder.path):
                with folder.waiting():
                    _elsewhere(folder, driven, servers, reporter)


def resume_any(
    folder: RunFolder,
    backend: Backend,
    reporter: Reporter,
    budgets: tuple[int | None, float | None] = (None, None),
) -> None:
    """Drive the run begun in ``folder``, in its calls (under other ``budgets``, where given) or in its evaluation."""
    from evalq.producer.run.execute import resume
    from evalq.producer.sweep.execute import resume_sweep

    if in_calls(folder):
        resume_sweep(folder, backend, reporter, budgets)
    else:
        resume(folder, backend, reporter)


def resume_or_take(
    folder: RunFolder, backend: Backend, reporter: Reporter, budgets: tuple[int | None, float | None]
) -> None:
    """`resume_any`; if others have finished the run meanwhile, fetch its report."""
    try:
        resume_any(folder, backend, reporter, budgets)
    except AlreadyRunning as driven:
        if folder.driver() or not backend.settings.broker:
            raise
        with Servers(backend.settings) as servers:
            # A retry elsewhere has reopened the sweep, but its earlier report is still there for a moment.
            sweep = None if isinstance(driven, Finished) else servers.sweeps.poll(folder.info().run)
            if (sweep is not None and sweep.state not in CALLS_OVER) or not _taken(folder, servers):
                raise
        _tell_taken(driven, reporter)


def begin_larger(folder: RunFolder, backend: Backend, budgets: tuple[int | None, float | None]) -> None:
    """Reopen a finished sweep if ``budgets`` are given."""
    from evalq.producer.run.backend import hold_folder

    if folder.info().state == "done" and any(budgets) and holds_sweep(folder):
        with hold_folder(folder, backend):
            refuse_uncallable(folder, backend)
            folder.note(state="retrying")


def launch_again(folder: RunFolder, backend: Backend, reporter: Reporter) -> str:
    """Leave a run that was begun before to the fleet, unless it is already. Returns its id."""
    from evalq.producer.run.execute import launch
    from evalq.producer.sweep.execute import launch_sweep

    info = folder.info()
    if info.state not in ("done", "detached") and not folder.driver():
        try:
            (launch_sweep if in_calls(folder) else launch)(folder, backend, reporter)
        except Finished:
            with Servers(backend.settings) as servers:
                _taken(folder, servers)
    return info.run


def see_elsewhere(folder: RunFolder, servers: Servers, reporter: Reporter) -> None:
    """If the run in ``folder`` is driven from another folder, wait for its report, and put it into this one.

    Returns at once if no other driver is known.
    """
    if not servers.named or folder.driver() or folder.info().state in ("done", "detached", "cancelled"):
        return
    from evalq.workers.servers.errors import SERVER_ERRORS

    run, announced = folder.info().run, ""
    # In a loop: the wait ends when the run may be taken over, but this process only watches.
    while folder.info().state != "done":
        by = ""
        with contextlib.suppress(
            *SERVER_ERRORS, EvalqError
        ):  # without the server, the caller reports the state noted here
            by = _living_driver(run, servers)
        if not by:
            return
        with folder.waiting():
            _elsewhere(folder, AlreadyRunning(run, by), servers, reporter, announced=by == announced)
        announced = by


def _living_driver(run: str, servers: Servers) -> str:
    """The driver of an open run in the ledger; empty for none, and for one that is gone or silent."""
    look: RunStatus | SweepStatus | None = None
    with contextlib.suppress(Incomplete):
        look = servers.runs.poll(run)
    look = look or servers.sweeps.poll(run)
    if look is None or ledger_state(run, servers) != "open" or is_gone(look.driver):
        return ""
    return look.driver if look.driver_silent <= servers.settings.driver_seconds else ""


def _elsewhere(
    folder: RunFolder, driven: AlreadyRunning, servers: Servers, reporter: Reporter, *, announced: bool = False
) -> None:
    """Wait until a run that is driven from another folder has its report, and put it into this one.

    Also returns when its driver has been silent for so long that the caller may take the run over.
    """
    from evalq.producer.driving.retries import ServerRetry
    from evalq.producer.servers import named_servers

    settings, retry = servers.settings, ServerRetry(servers.settings, reporter)
    run, until = folder.info().run, time.monotonic() + settings.driver_seconds
    where, lost, orphaned = f"{run} {named_servers(settings)}", False, _Orphaned(run, servers)
    with only_watching(where), retry.reporting():
        if not (announced or isinstance(driven, Finished)):
            reporter.say(f"run {run} is driven by {driven.by}; waiting for its report")
        while True:
            # While the server is away, both this command and that driver wait, and nobody hears of the driver.
            waits = retry.waits
            state = retry(lambda: ledger_state(run, servers))
            if retry.waits > waits or (not state and not lost):
                lost, until = not state, time.monotonic() + settings.driver_seconds
            if state == "done" and retry(lambda: _taken(folder, servers)):
                _tell_taken(driven, reporter)
                return
            if state == "cancelled":
                raise Cancelled(f"run {run} was cancelled; {folder.next_step('cancelled')}")
            if state in LEFT_ALONE:
                raise InfrastructureError(f"run {run} was left {state} by {driven.by}; see evalq status {where}")
            # A run that is done keeps its driver until its report. If the server lost the run, the driver restores it:
            # taking it over here before that would pay for all calls of a sweep again.
            if state not in ("open", "done", ""):
                return
            since = retry(orphaned.seconds)
            if since is None and time.monotonic() >= until:
                return
            # Only that folder has the outputs: taking the run over here would pay for them again.
            if since is not None and since >= _ORPHANED_AFTER * settings.driver_seconds:
                raise Incomplete(
                    f"run {run} is over: another producer, which is gone, collected its outputs; they are with that "
                    f"one, not in {folder.path}; resume it where that one ran, or start another with another --once key"
                )
            time.sleep(POLL_SECONDS)


def _taken(folder: RunFolder, servers: Servers) -> bool:
    """Put another process's report from the ledger into ``folder``; False if there is none."""
    from evalq.producer.lifecycle.fetch import fetch

    if fetch(folder.info().run, folder.path, servers.runs, servers.settings) is None:
        return False
    with folder.driving() as mine:
        if mine:
            _note_done(folder)
    return True


def _tell_taken(driven: AlreadyRunning, reporter: Reporter) -> None:
    by = "" if isinstance(driven, Finished) else f" ({driven.by})"
    reporter.say(f"run {driven.run} was finished by another command{by}: its report is here, its records are there")


def _note_done(folder: RunFolder) -> None:
    """Note that the run is done, by legal moves: if its calls were made elsewhere, it was still calling here."""
    if in_calls(folder):
        leave_to_others(folder)
    steps: tuple[RunState, ...] = ("called", "open", "done")
    for state in steps:
        if may_follow(state, folder.info().state):
            folder.note(state=state)
    folder.drop_working_files()  # they hold no answers: it was computed elsewhere


class _Orphaned:
    """Detects a sweep whose calls are all made and which nobody evaluates."""

    def __init__(self, run: str, servers: Servers) -> None:
        self._run = run
        self._servers = servers
        self._since: float | None = None

    def seconds(self) -> float | None:
        """For how long the sweep has been orphaned; None if it is not."""
        if not self._is_orphaned():
            self._since = None
            return None
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since

    def _is_orphaned(self) -> bool:
        sweep = self._servers.sweeps.poll(self._run)
        if sweep is None or sweep.state not in CALLS_OVER or sweep.waiting:
            return False
        judges = (self._servers.sweeps.poll(name) for name in self._servers.sweeps.judge_sweeps(self._run))
        if any(each is not None and each.state not in CALLS_OVER for each in judges):
            return False  # a judge sweep of the outputs is open
        with contextlib.suppress(Incomplete):
            look = self._servers.runs.poll(self._run)
            driven = bool(look.driver) and look.driver_silent <= self._servers.settings.driver_seconds
            # A done run keeps its driver until its report is there; the caller has checked for that.
            return look.progress.state in ("open", "done") and not (driven or look.detached)
        return True


# -- retrying failed calls, and chunks with dead records -------------------------------------------


def refuse_uncallable(folder: RunFolder, backend: Backend) -> None:
    """Raise UsageError if a judge target cannot be called any more, or its settings have changed since its replies.

    The run stays as it is.
    """
    if holds_sweep(folder):
        from evalq.producer.sweep.execute import with_targets
        from evalq.producer.sweep.judge_targets import refuse_uncalled

        backend = with_targets(backend, folder)
        refuse_uncalled(Sweep.load(folder), backend, backend)


def begin_retry(folder: RunFolder) -> None:
    """Reopen a finished run without the outputs of failed calls and the answers of chunks with dead records.

    May be repeated after a crash. Raises UsageError if the run is not done or has nothing to retry.
    """
    info = folder.info()
    if info.state not in ("done", "retrying"):
        raise UsageError(f"{folder.path}: this run is {info.state}; {folder.next_step(info.state)}")
    if holds_sweep(folder):
        sweep = Sweep.load(folder)
        for each in (sweep, *judge_sweeps(folder)):
            each.recorded.drop(each.recorded.failed())
        folder.drop_working_files()
        folder.note(state="retrying")
        return
    counts = folder.report()["records"]
    if not counts["dead"]:
        more = (
            f": its {plural(counts['errors'], 'error is', 'errors are')} in what was read, and stay"
            if counts.get("errors")
            else ""
        )
        raise UsageError(f"{folder.path}: no call failed and no record is dead; there is nothing to retry{more}")
    records_of(folder)  # raises if they are elsewhere
    job = Job.load(folder)
    dead = info.retry or {
        str(seq): count for seq, answer in answers(folder) if (count := decode(answer, job.evaluator).tally.dead)
    }
    # Note the counts before setting the answers aside: after a crash they cannot be counted again.
    folder.note(retry=dead)
    KeptAnswers.keep_for_retry(folder, {int(seq) for seq in dead})
    folder.note(state="retrying")
