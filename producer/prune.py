"""Removing runs that have ended (their folders, and what the ledger still holds of them), and suites that have."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.errors import Incomplete, UsageError
from producer.folder import RunFolder

if TYPE_CHECKING:
    from workers.calls import Calls
    from workers.history import History
    from workers.ledger import Ledger

__all__ = ["forget_suites", "prune"]

ENDED = ("done", "cancelled", "failed")


def prune(
    runs: Path, ledger: Ledger | None, calls: Calls | None, days: float, *, everyone: bool, dry_run: bool
) -> Iterator[str]:
    """Remove ended runs older than ``days``; yields a line a run. Runs that could go on, and links, are never touched.

    A folder's age is that of its run.json. The ledger forgets the runs whose folders go, and with ``everyone`` all
    that ended and have no folder here: the ledger knows no age, and they may be another person's.
    """
    before = time.time() - days * 86_400
    here, removed = set(), set()
    for path in sorted(path.parent for path in runs.glob("*/run.json")):
        if path.is_symlink():
            yield f"{path}: a link, left alone: what it leads to is not in {runs}"
            continue
        info = RunFolder(path).info()
        here.add(info["run"])
        if info["state"] in ENDED and (path / "run.json").stat().st_mtime <= before:
            removed.add(info["run"])
            if not dry_run:
                shutil.rmtree(path)
                if calls is not None:
                    calls.erase(info["run"])
            yield f"{info['run']}: {path}"
    if ledger is None:
        return
    for run in ledger.runs():
        if run not in removed and (run in here or not everyone):
            continue
        try:
            ended = ledger.look(run).progress.state in ENDED
        except Incomplete:
            continue
        if ended:
            if not dry_run:
                ledger.forget(run)
            yield f"{run}: in the ledger"


def forget_suites(history: History, suites: Collection[str], *, dry_run: bool) -> Iterator[str]:
    """Drop the histories of suites that will not run again; yields a line for each. Raises UsageError.

    Run folders, runs in the ledger and counters stay as they are.
    """
    places = history.places()
    for suite in suites:
        if all(place.suite != suite for place in places):
            known = ", ".join(sorted({place.suite for place in places})) or "none"
            raise UsageError(f"--suite {suite}: the ledger has no history of it (it has: {known})")
    for place in sorted(place for place in places if place.suite in suites):
        if not dry_run:
            history.forget(place)
        yield f"{place.suite}: history of {' of '.join(filter(None, (place.evaluator, place.target)))}"
