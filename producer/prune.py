"""Removing runs that have ended: their folders, and what the ledger still holds of them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.errors import Incomplete
from producer.folder import RunFolder

if TYPE_CHECKING:
    from workers.ledger import Ledger

__all__ = ["prune"]

ENDED = ("done", "cancelled", "failed")


def prune(runs: Path, ledger: Ledger | None, days: float, *, dry_run: bool) -> Iterator[str]:
    """Remove ended runs older than ``days``; yields a line a run. Runs that could go on are never touched.

    A folder's age is that of its run.json; the ledger's runs have none of their own, so those whose folder is
    removed here go, and ended ones without a folder here when ``days`` is 0.
    """
    before = time.time() - days * 86_400
    removed = []
    for path in sorted(path.parent for path in runs.glob("*/run.json")):
        info = RunFolder(path).info()
        if info["state"] in ENDED and (path / "run.json").stat().st_mtime <= before:
            removed.append(info["run"])
            if not dry_run:
                shutil.rmtree(path)
            yield f"{info['run']}: {path}"
    for run in ledger.runs() if ledger is not None else ():
        try:
            ended = ledger is not None and ledger.look(run).progress.state in ENDED
        except Incomplete:
            continue
        if ended and (run in removed or not days):
            if not dry_run and ledger is not None:
                ledger.forget(run)
            yield f"{run}: in the ledger"
