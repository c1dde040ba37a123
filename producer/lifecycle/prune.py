"""Removing runs that have ended (their folders, and what the ledger still holds of them), and suites that have."""

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
from evalq.producer.folder.run_folder import RunFolder, clean_up, private_name, run_folders
from evalq.producer.outputs.final import drop_left

if TYPE_CHECKING:
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
    """Remove ended runs older than ``days``; yields a line a run. Runs that could go on, and links, are never touched.

    A folder's age is that of its run.json. The ledger forgets the runs whose folders go, and with ``everyone`` all
    that ended and have no folder here: the ledger knows no age, and they may be another person's. What cannot be read
    is told (``warn``) and left; what killed processes left under private names goes, and in runs that are done.
    """
    before = time.time() - days * 86_400
    here, removed = set(), set()
    for folder, info in sorted(run_folders(runs, warn), key=lambda each: each[0].path):
        if folder.path.is_symlink():
            yield f"{folder.path}: a link, left alone: what it leads to is not in {runs}"
            continue
        # Its folder is here, so the ledger keeps the run, however old it is there.
        here.add(info.run)
        if info.state in ENDED and _noted(folder) <= before:
            if not dry_run and not _removed(folder, warn):
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
    if ledger is None:
        return
    for run in ledger.runs():
        if run not in removed and (run in here or not everyone):
            continue
        try:
            line = _forgotten(run, ledger, dry_run=dry_run)
        except WireError as error:  # of one run: the others are forgotten all the same
            warn(f"warning: {error}")
            continue
        if line is not None:
            yield line


def prune_named(
    folders: Sequence[RunFolder], ledger: RunLedger | None, calls: SweepLedger | None, *, dry_run: bool
) -> Iterator[str]:
    """Remove these runs, however old; yields a line a run. Raises UsageError for one that could go on."""
    infos = [folder.info() for folder in folders]
    for folder, info in zip(folders, infos, strict=True):
        # All are asked before the first one is removed.
        if info.state not in ENDED:
            raise UsageError(
                f"{folder.path}: this run is {info.state}; end it first: evalq cancel {folder.named(info.server)}"
            )
    for folder, info in zip(folders, infos, strict=True):
        if not dry_run:
            _removed(folder, _refuse)
            if calls is not None:
                _forget_calls(info.run, calls)
        yield f"{info.run}: {folder.path}"
        if ledger is not None and (line := _forgotten(info.run, ledger, dry_run=dry_run)) is not None:
            yield line


def _noted(folder: RunFolder) -> float:
    """When something was noted in a folder last, in seconds since 1970; never, where another process removed it."""
    try:
        return (folder.path / "run.json").stat().st_mtime
    except FileNotFoundError:
        return math.inf


def _forget_calls(run: str, calls: SweepLedger) -> None:
    for each in (run, *calls.judge_sweeps(run)):
        calls.delete(each)


def _removed(folder: RunFolder, warn: Callable[[str], None]) -> bool:
    """Remove a run's folder, for all at once; False where it is gone, and with a warning where that cannot be."""
    with contextlib.suppress(FileNotFoundError), folder.driving() as mine:  # another process may remove it meanwhile
        # Asked again under the lock: it may have been taken up since it was listed.
        if not mine or folder.info().state not in ENDED:
            warn(f"warning: {folder.path} is skipped: a process drives it")
            return False
        try:
            # Renamed first: nobody sees half a folder, and what a killed process leaves is found by such a name.
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


def _forgotten(run: str, ledger: RunLedger, *, dry_run: bool) -> str | None:
    """Have the ledger forget a run that ended; None for one that did not, or that it does not know."""
    try:
        if ledger.poll(run).progress.state not in ENDED:
            return None
    except Incomplete:
        return None
    if not dry_run:
        ledger.delete(run)
    return f"{run}: in the ledger"


def forget_suites(history: History, suites: Collection[str], *, dry_run: bool) -> Iterator[str]:
    """Drop the histories of suites that will not run again; yields a line for each. Raises UsageError.

    Run folders, runs in the ledger and counters stay as they are.
    """
    places = history.all()
    for suite in suites:
        if all(place.suite != suite for place in places):
            known = ", ".join(sorted({place.suite for place in places})) or "none"
            raise UsageError(f"--suite {suite}: the ledger has no history of it (it has: {known})")
    for place in sorted(place for place in places if place.suite in suites):
        if not dry_run:
            history.forget(place)
        yield f"{place.suite}: history of {' of '.join(filter(None, (place.evaluator, place.target)))}"
