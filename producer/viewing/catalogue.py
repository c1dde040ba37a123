"""Which runs there are to look at: folders here and those that were named, and what a ledger knows besides.

Pages name a run by its key here. Nothing else of what a browser asks for is ever looked up on a disk.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.views.markdown import visible
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.run_folder import RunFolder, is_private
from evalq.producer.invocation.finding import find
from evalq.producer.viewing.ledger import Ledger

__all__ = ["Catalogue", "KnownRun"]

_SECONDS = 1.0
"""For so long what was found is taken as it was."""
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class KnownRun:
    """A run that can be looked at; without a ``folder`` it is in the ledger only."""

    key: str
    run: str
    evaluator: str = ""
    suite: str = ""
    target: str = ""
    state: str = ""
    started: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    folder: RunFolder | None = None
    trouble: str = ""
    """Why nothing more is known of it."""
    noted: int = 0
    """When its folder was noted in last, in ns: it tells runs apart that were begun within a second, as in a list."""


class Catalogue:
    """The runs of one viewer. For many threads at a time."""

    def __init__(self, given: Sequence[str], ledger: Ledger) -> None:
        """``given`` are run folders, folders of them, and ids of runs here. Raises UsageError for anything else."""
        self._ledger = ledger
        self._parents = [RUNS]
        self._named: list[Path] = []
        self.asked: list[str] = []
        """The keys of the runs among ``given``."""
        self._read: dict[Path, tuple[_Stamp, KnownRun]] = {}
        self._found: dict[str, KnownRun] = {}
        self._looked = -_SECONDS
        self._looking = threading.Lock()
        wanted = [self._place(name) for name in given]
        known = self.runs()
        for name, path in zip(given, wanted, strict=True):
            self.asked += [each.key for each in known if (each.folder and each.folder.path == path) or
                           (path is None and each.run == name and not each.folder)]  # fmt: skip

    def _place(self, name: str) -> Path | None:
        """The run folder that ``name`` is, also to be shown; None for a folder of runs, and for a run in the ledger."""
        path = Path(name)
        if path.is_dir() and not (path / "run.json").is_file():
            if not any(path.glob("*/run.json")):
                raise UsageError(f"{path}: neither a run folder (it has no run.json) nor a folder of run folders")
            self._parents.append(path)
            return None
        try:
            found = find(name).path
        except UsageError:
            if name in self._ledger.runs():
                return None
            raise
        if found.parent not in self._parents:
            self._named.append(found)
        return found

    def runs(self) -> list[KnownRun]:
        """All of them, the latest begun first."""
        with self._looking:
            if time.monotonic() - self._looked >= _SECONDS:
                self._found = self._look()
                self._looked = time.monotonic()
            return list(self._found.values())

    def get(self, key: str) -> KnownRun | None:
        """The run of this key."""
        self.runs()
        return self._found.get(key)

    def _look(self) -> dict[str, KnownRun]:
        paths = self._folders()
        folders = [known for path in paths if (known := self._known(path)) is not None]
        self._read = {path: read for path in paths if (read := self._read.get(path)) is not None}
        here = {known.run for known in folders}
        away = [KnownRun(run, run, started=self._ledger.created(run)) for run in self._ledger.runs() if run not in here]
        ordered = sorted([*folders, *away], key=lambda each: (each.started, each.noted, each.run), reverse=True)
        return {known.key: known for known in _with_keys(ordered)}

    def _folders(self) -> list[Path]:
        found = [path.parent for parent in self._parents for path in parent.glob("*/run.json")]
        distinct: dict[Path, Path] = {}
        for path in [*self._named, *(path for path in found if not is_private(path.name))]:
            distinct.setdefault(path.resolve(), path)
        return list(distinct.values())

    def _known(self, path: Path) -> KnownRun | None:
        """What the run.json in ``path`` says, read again when it was written again; None where it is gone."""
        try:
            found = (path / "run.json").stat()
        except OSError:
            self._read.pop(path, None)
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        before = self._read.get(path)
        if before is None or before[0] != stamp:
            before = self._read[path] = (stamp, _read(path, found.st_ctime_ns))
        return before[1]


def _read(path: Path, noted: int) -> KnownRun:
    folder = RunFolder(path)
    try:
        info = folder.info()
    except (EvalqError, OSError) as error:
        return KnownRun("", path.name, folder=folder, trouble=str(error))
    return KnownRun(
        "", info.run, info.evaluator, info.suite, info.target, info.state, info.started, info.tags, folder, noted=noted
    )


def _with_keys(runs: Sequence[KnownRun]) -> Iterable[KnownRun]:
    """Each with its id as key; where two have the same one, or it could not stand in an address, with a mark behind."""
    counts = Counter(_said(known.run) for known in runs)
    for known in runs:
        key = _said(known.run)
        place = str(known.folder.path.resolve()) if known.folder else ""
        mark = "~" + hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:8]
        marked = counts[key] > 1 or not key.strip(".")  # a browser takes dots for the folder above
        yield replace(known, key=key + (mark if marked else ""))


def _said(run: str) -> str:
    """An id, or the name of a folder, which may be no text at all, as it can stand on a page."""
    return visible(run.encode(errors="replace").decode())
