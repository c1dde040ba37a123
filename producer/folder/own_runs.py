"""Notes on the runs that this user began on this machine, with the files that the user named.

A run folder may come from anybody: a CI artifact, a colleague, a checkout. The trust table limits which of its paths
evalq uses. A resume needs more, such as the targets file and the paths of inputs; evalq keeps them in the user's state
folder ($XDG_STATE_HOME/evalq, or ~/.local/state/evalq), which nobody else may write.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import EvalqError, UsageError
from evalq.evalcore.files import read_plain, write_atomic
from evalq.evalcore.records.inputs import stands_for
from evalq.evalcore.trust import Thing, Writer, allows, refuse
from evalq.producer.folder.files import ASKED, FURTHER, HEAD, MANIFEST, SWEPT
from evalq.producer.folder.run_folder import RunFolder
from evalq.workers.targets.spec import is_spec

_allowed: set[str] = set()
"""Paths that the user of this process named for a run that had already begun."""


class _RunNote(msgspec.Struct, frozen=True):
    """A run that this user began: the ``paths`` named for it, the ``roots`` that its workers may read, the targets file
    with its digest, and the digest of the question for the targets.
    """

    run: str
    paths: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    targets: str = ""
    sha256: str = ""
    question: str = ""


class _LiveNames(msgspec.Struct, frozen=True):
    """Files in the options of a live sweep."""

    cache: str = ""
    reuse: tuple[str, ...] = ()


class _FileNames(msgspec.Struct, frozen=True):
    """Files that a request names; the head of a sweep has them."""

    request: Request
    live: _LiveNames = _LiveNames()


def state_folder() -> Path:
    """The folder of the notes, which may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The XDG specification says to ignore a relative path.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "evalq"


def named_paths(evaluator: str, request: Request, cache: str = "", reuse: Sequence[str] = ()) -> list[str]:
    """The absolute paths, seen from here, that a request to ``evaluator`` and the options of a live sweep name."""
    names = _FileNames(request, _LiveNames(cache, tuple(reuse)))
    return [*_read_paths(evaluator, names), *_written_paths(evaluator, names)]


def _read_paths(evaluator: str, names: _FileNames) -> Iterator[str]:
    """Paths that a run reads."""
    kinds = {option.name: option.kind for option in plugins.get(evaluator).command.options}
    files = [value for name, value in names.request.options.items() if kinds.get(name) == "path"]
    yield from _absolute(names.request.inputs, *files, names.live.reuse)


def _written_paths(evaluator: str, names: _FileNames) -> Iterator[str]:
    """Paths that a run may write, such as an export or a cache, and other options that look like a path."""
    kinds = {option.name: option.kind for option in plugins.get(evaluator).command.options}
    texts = {name: value for name, value in names.request.options.items() if kinds.get(name) != "path"}
    yield from _absolute(*(value for name, value in texts.items() if name == "out" or os.sep in str(value)))
    yield from _absolute(names.live.cache)


def _absolute(*values: object) -> Iterator[str]:
    for value in values:
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str | Path) and str(each) not in ("", "-"):
                yield str(Path(each).absolute())


def record(folder: RunFolder, paths: Iterable[str] = ()) -> None:
    """Note the run in ``folder`` as begun by this user, with these ``paths`` and those noted before.

    An unwritable state folder is no error here: `refuse_paths` reports missing notes if it needs them.
    """
    info = folder.info()
    known = _load_note(folder) or _RunNote(info.run)
    sources = [*(source.path for source in info.sources), *filter(None, (info.follows,))]
    paths = dict.fromkeys((*known.paths, *sources, *paths))
    roots = dict.fromkeys((*known.roots, *info.roots))
    _write_note(folder, msgspec.structs.replace(known, paths=tuple(paths), roots=tuple(roots)))


def note_targets(folder: RunFolder, question: str, targets: str) -> None:
    """Note the targets file that the user named for the run in ``folder``; ``question`` is its question's digest."""
    with contextlib.suppress(OSError):
        known = _load_note(folder) or _RunNote(folder.info().run)
        path = targets if is_spec(targets) else str(Path(targets).absolute())
        _write_note(folder, msgspec.structs.replace(known, targets=path, sha256=_digest(path), question=question))


def targets_of(folder: RunFolder, question: str) -> str:
    """The targets file that this user named for this question of the run in ``folder``; empty if unknown.

    Raises UsageError if the file has changed.
    """
    known = _load_note(folder)
    if known is None or not question or known.question != question:
        return ""
    with contextlib.suppress(OSError):
        if _digest(known.targets) == known.sha256:
            return known.targets
    raise UsageError(
        f"{folder.path}: the targets file {known.targets} has changed since you named it for this run; "
        f"name the right one: --targets FILE"
    )


def allow_for_process(paths: Iterable[str]) -> None:
    """Note that the user of this process named these paths for a run that had already begun."""
    _allowed.update(paths)


def refuse_paths(folder: RunFolder, roots: Sequence[Path]) -> None:
    """Raise UsageError if the run in ``folder`` names a file that it may not choose (`evalcore.trust`).

    ``roots`` is the machine's setting.
    """
    info, known = folder.info(), _load_note(folder) or _RunNote("")
    exact = {*known.paths, *_allowed}
    reads, writes, requests = [*filter(None, (info.follows,))], list[str](), [*_heads(folder)]
    if not requests or (folder.path / MANIFEST).is_file():
        # Otherwise the run is planned again from its sweep's head, and does not read these.
        reads += [file for source in info.sources for file in source.files]
        requests.append(_FileNames(info.request))
    for names in requests:
        reads += _read_paths(info.evaluator, names)
        writes += _written_paths(info.evaluator, names)
    # A pattern or a folder that the user named stands for the files in it, links included.
    reads = [file for name in reads if name not in exact for file in stands_for(name)]
    # Missing files are not read here, and reported where they are needed.
    paths = [*filter(os.path.lexists, [*_inside(folder.path), *reads]), *writes]
    begun = "begun with it" if known.run else "begun by you on this machine"
    then = f"this run was not {begun}. Start it anew, or allow the folder of its files: EVALQ_ROOTS=DIR"
    # A folder that the user named as an input may be read completely.
    within: tuple[str | Path, ...] = (folder.path, Path.cwd(), *roots, *known.paths)
    for path in dict.fromkeys(paths):
        if path not in exact:
            refuse(Writer.RUN_FOLDER, Thing.PATH, path, str(folder.path), then, within)


def _inside(folder: Path) -> Iterator[str]:
    """Files that a sweep reads and writes in its own folder, where it would follow a link."""
    further = folder / FURTHER
    yield from map(str, (*(folder / name for name in (*SWEPT, "spool")), *further.glob("*"), *further.glob("*/*")))


def may_read(folder: RunFolder, path: str) -> bool:
    """Whether the run in ``folder`` may read ``path``: below it or here, or named when it began."""
    known = _load_note(folder) or _RunNote("")
    within: tuple[str | Path, ...] = (folder.path, Path.cwd(), *known.paths)
    return path in {*known.paths, *_allowed} or allows(Writer.RUN_FOLDER, Thing.PATH, path, within)


def roots_of(folder: RunFolder) -> list[str]:
    """The folders of run.json that a worker of the run may read."""
    known = _load_note(folder) or _RunNote("")
    exact, within = {*known.roots, *_allowed}, (folder.path, Path.cwd())
    return [
        root for root in folder.info().roots if root in exact or allows(Writer.RUN_FOLDER, Thing.PATH, root, within)
    ]


def _heads(folder: RunFolder) -> Iterator[_FileNames]:
    """The heads of the sweeps in ``folder``; a damaged one fails later, when it is read completely."""
    for path in (folder.path / HEAD, folder.path / ASKED, *(folder.path / FURTHER).glob(f"*/{HEAD}")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(read_plain(path), type=_FileNames)


def _digest(path: str) -> str:
    if is_spec(path):
        return hashlib.sha256(path.encode()).hexdigest()
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _note_path(folder: RunFolder) -> Path:
    """The path of a run's note, by its id, so that it holds for copies of the folder, too."""
    return state_folder() / "runs" / f"{hashlib.sha256(folder.info().run.encode()).hexdigest()[:32]}.json"


def _load_note(folder: RunFolder) -> _RunNote | None:
    """This user's note on the run in ``folder``; None if there is none, or if others could have written it."""
    with contextlib.suppress(OSError, EvalqError, msgspec.DecodeError):
        path = _note_path(folder)
        if all(_private(each) for each in (state_folder(), path.parent, path)):
            known = msgspec.json.decode(read_plain(path), type=_RunNote)
            return known if known.run == folder.info().run else None
    return None


def _private(path: Path) -> bool:
    """Whether only this user (and root) can have written there."""
    found = path.lstat()
    if not hasattr(os, "geteuid"):  # Windows, whose modes say nothing about others
        return False
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o022


def _write_note(folder: RunFolder, known: _RunNote) -> None:
    with contextlib.suppress(OSError):
        path = _note_path(folder)
        for each in (state_folder(), path.parent):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _private(state_folder()) and _private(path.parent):
            write_atomic(path, msgspec.json.encode(known) + b"\n", mode=0o600)
