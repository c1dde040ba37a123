"""Remove ended runs (their folders and their data in the ledger), and histories of suites."""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evalq.evalcore.errors import EvalqError, Incomplete, UsageError, WireError
from evalq.evalcore.model.life import ENDED
from evalq.evalcore.records.traces.recording import NAME
from evalq.producer.folder.files import TRACES
from evalq.producer.folder.lock import LOCK, RunLock
from evalq.producer.folder.run_folder import RunFolder, clean_up, private_name, run_folders
from evalq.producer.follow.traces import FOLLOWERS, is_abandoned, prune_windows
from evalq.producer.outputs.final import drop_left

if TYPE_CHECKING:
    from evalq.producer.folder.documents import RunInfo
    from evalq.workers.ledger.heartbeats import Heartbeats
    from evalq.workers.ledger.history import History
    from evalq.workers.ledger.runs import RunLedger
    from evalq.workers.ledger.sweeps import SweepLedger


def prune(
    runs: Path,
    ledger: RunLedger | None,
    calls: SweepLedger | None,
    days: float,
    *,
    everyone: bool,
    dry_run: bool,
    warn: Callable[[str], None],
) -> Iterator[str]:
    """Remove ended runs older than ``days``; yields a line for each. It never touches unfinished runs and links.

    A folder's age is that of its run.json. The ledger forgets removed runs and, with ``everyone``, all ended runs
    without a folder here: the ledger knows no age, and they may belong to other users. It warns of unreadable folders
    and keeps them. It also removes files that killed processes left, and recorded traces that no run uses.
    """
    before = time.time() - days * 86_400
    here, removed = set(), set()
    for folder, info in sorted(run_folders(runs, warn), key=lambda each: each[0].path):
        if folder.path.is_symlink():
            yield f"{folder.path}: a link, left alone: what it leads to is not in {runs}"
            continue
        # Its folder is here, so the ledger keeps the run, however old it is there.
        here.add(info.run)
        if _noted(folder) <= before and _is_over(info, ledger, calls, warn):
            if not dry_run and not _remove(folder, warn):
                continue
            removed.add(info.run)
            # A sweep is in the ledger twice: as its calls, and as the run that evaluated them.
            if calls is not None and not dry_run:
                _forget_calls(info.run, calls)
            yield f"{info.run}: {folder.path}"
        elif info.state == "done" and not dry_run:
            with contextlib.suppress(EvalqError, OSError):  # it may be removed meanwhile, or be another's
                drop_left(folder)
    for path in clean_up(runs, dry_run=dry_run):
        yield f"left by a killed process: {path}"
    yield from _prune_traces(runs, before, removed, dry_run=dry_run)
    if ledger is None:
        return
    for run in ledger.runs():
        if run not in removed and (run in here or not everyone):
            continue
        try:
            line = _forget_run(run, ledger, dry_run=dry_run)
        except WireError as error:  # of one run: the others are forgotten all the same
            warn(f"warning: {error}")
            continue
        if line is not None:
            yield line


_READING_SECONDS = 3_600.0
"""A process that reads traces writes more often."""


def _prune_traces(runs: Path, before: float, removed: Collection[str], *, dry_run: bool) -> Iterator[str]:
    """Remove what `--traces` recorded for runs that are ``removed`` or gone, by the same age. Yields a line each."""
    kept = (info for _, info in run_folders(runs, lambda text: None) if info.run not in removed)
    used = {source.path for info in kept for source in info.sources}
    for path in sorted((runs / TRACES).glob(f"*/{NAME}")):
        if path.stat().st_mtime <= before and str(path.absolute()) not in used:
            if not dry_run:
                shutil.rmtree(path.parent, ignore_errors=True)
            yield f"recorded traces: {path.parent}"
    for path in sorted((runs / TRACES).glob(".traces-*")):
        written = max((each.stat().st_mtime for each in (path, *path.iterdir())), default=0.0)
        if written <= time.time() - _READING_SECONDS:
            if not dry_run:
                shutil.rmtree(path, ignore_errors=True)
            yield f"left by a killed process: {path}"
    for folder in sorted(runs.glob(FOLLOWERS)):
        if is_abandoned(folder, used, before) and (dry_run or _remove_follower(folder)):
            yield f"traces that nobody follows any more: {folder}"
            continue
        for path in prune_windows(folder, used, before, dry_run=dry_run):
            yield f"followed traces: {path}"


def _remove_follower(folder: Path) -> bool:
    """Remove a follower's folder; False if a process has it."""
    lock = RunLock.take(folder / LOCK)
    if lock is None:
        return False
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
    return True


def prune_named(
    folders: Sequence[RunFolder], ledger: RunLedger | None, calls: SweepLedger | None, *, dry_run: bool
) -> Iterator[str]:
    """Remove these runs, however old; yields a line for each. Raises UsageError for an unfinished one."""
    infos = [folder.info() for folder in folders]
    for folder, info in zip(folders, infos, strict=True):
        # Check all before removing the first.
        if not _is_over(info, ledger, calls, _refuse):
            raise UsageError(
                f"{folder.path}: this run is {info.state}; end it first: evalq cancel {folder.named(info.server)}"
            )
    for folder, info in zip(folders, infos, strict=True):
        if not dry_run:
            _remove(folder, _refuse)
            if calls is not None:
                _forget_calls(info.run, calls)
        yield f"{info.run}: {folder.path}"
        if ledger is not None and (line := _forget_run(info.run, ledger, dry_run=dry_run)) is not None:
            yield line


def _is_over(info: RunInfo, ledger: RunLedger | None, calls: SweepLedger | None, warn: Callable[[str], None]) -> bool:
    """Whether a run has ended: by its folder, or by the ledger if it was left to a fleet, which then has its report."""
    if info.state in ENDED:
        return True
    if info.state != "detached" or ledger is None or calls is None:
        return False
    try:
        with contextlib.suppress(Incomplete):
            status = ledger.poll(info.run)
            return status.progress.state in ENDED and (status.progress.state != "done" or status.reported)
        sweep = calls.poll(info.run)
    except WireError as error:  # of one run: the others are removed all the same
        warn(f"warning: {error}")
        return False
    return sweep is not None and sweep.state in ("cancelled", "failed")


def _noted(folder: RunFolder) -> float:
    """The time of a folder's last note, in seconds since 1970; infinity if another process removed it."""
    try:
        return (folder.path / "run.json").stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _forget_calls(run: str, calls: SweepLedger) -> None:
    for each in (run, *calls.judge_sweeps(run)):
        calls.delete(each)


def _remove(folder: RunFolder, warn: Callable[[str], None]) -> bool:
    """Remove a run's folder in one step; False if it is gone, or with a warning if it cannot be removed."""
    with contextlib.suppress(FileNotFoundError), folder.driving() as mine:  # another process may remove it meanwhile
        # Check again under the lock: a process may have resumed it since it was listed.
        if not mine or folder.info().state not in (*ENDED, "detached"):
            warn(f"warning: {folder.path} is skipped: a process drives it")
            return False
        try:
            # Rename first: nobody sees half a folder, and remains of a killed process are found by the name.
            gone = private_name(folder.path)
            folder.path.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            warn(f"warning: {folder.path} is skipped: {error}")
            return False
        return True
    return False


def _refuse(text: str) -> None:
    raise UsageError(text.removeprefix("warning: "))


def _forget_run(run: str, ledger: RunLedger, *, dry_run: bool) -> str | None:
    """Delete an ended run from the ledger; None if it is not ended or unknown."""
    try:
        if ledger.poll(run).progress.state not in ENDED:
            return None
    except Incomplete:
        return None
    if not dry_run:
        ledger.delete(run)
    return f"{run}: in the ledger"


def forget_suites(history: History, heartbeats: Heartbeats, suites: Collection[str], *, dry_run: bool) -> Iterator[str]:
    """Drop the histories of suites that will not run again, and the processes that followed traces for them.

    Yields a line for each. Raises UsageError.

    Run folders, runs in the ledger and counters stay as they are.
    """
    keys, followers = history.all(), heartbeats.followers()
    names = {key.suite for key in keys} | {facts.suite for facts in followers.values()}
    for suite in suites:
        if suite not in names:
            known = ", ".join(sorted(names)) or "none"
            raise UsageError(f"--suite {suite}: the ledger has no history of it (it has: {known})")
    for key in sorted(key for key in keys if key.suite in suites):
        if not dry_run:
            history.forget(key)
        yield f"{key.suite}: history of {' of '.join(filter(None, (key.evaluator, key.target)))}"
    for name, facts in sorted(followers.items()):
        if facts.suite in suites:
            if not dry_run:
                heartbeats.forget_follower(name)
            yield f"{facts.suite}: metrics of the traces that {facts.host} followed"
