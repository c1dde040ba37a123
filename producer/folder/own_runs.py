"""Runs that this user began on this machine, and what the user named for them then.

A run folder may come from anybody: a CI artifact, a colleague, a checkout. What it names is used only as far as the
trust table allows it. So what a resume has to know besides, the targets file and the paths of inputs, is kept in the
user's own state folder ($XDG_STATE_HOME/evalq, or ~/.local/state/evalq), which nobody else may write.
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

_allowed: set[str] = set()
"""Paths that this process's user named for runs which it then found begun."""


class _Known(msgspec.Struct, frozen=True):
    """A run that this user began: the ``paths`` that were named for it, the ``roots`` that its workers may
    read under, the targets file and its digest, and that of the question that its targets are asked.
    """

    run: str
    paths: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    targets: str = ""
    sha256: str = ""
    question: str = ""


class _Live(msgspec.Struct, frozen=True):
    """What the options of a live sweep name."""

    cache: str = ""
    reuse: tuple[str, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    """What a run was asked for, as far as it names files; the head of a sweep has it."""

    request: Request
    live: _Live = _Live()


def state_folder() -> Path:
    """Where this user's runs are noted; nothing says that it is there."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # As the XDG specification says: a relative path there is to be ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "evalq"


def named_paths(evaluator: str, request: Request, cache: str = "", reuse: Sequence[str] = ()) -> list[str]:
    """The absolute paths, seen from here, that a request to ``evaluator`` and the options of a live sweep name."""
    asked = _Asked(request, _Live(cache, tuple(reuse)))
    return [*_read(evaluator, asked), *_written(evaluator, asked)]


def _read(evaluator: str, asked: _Asked) -> Iterator[str]:
    """What is read."""
    kinds = {option.name: option.kind for option in plugins.get(evaluator).command.options}
    files = [value for name, value in asked.request.options.items() if kinds.get(name) == "path"]
    yield from _absolute(asked.request.inputs, *files, asked.live.reuse)


def _written(evaluator: str, asked: _Asked) -> Iterator[str]:
    """What may be written, and not be there yet: an export, a cache, and whatever else looks like a path."""
    kinds = {option.name: option.kind for option in plugins.get(evaluator).command.options}
    texts = {name: value for name, value in asked.request.options.items() if kinds.get(name) != "path"}
    yield from _absolute(*(value for name, value in texts.items() if name == "out" or os.sep in str(value)))
    yield from _absolute(asked.live.cache)


def _absolute(*values: object) -> Iterator[str]:
    for value in values:
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str | Path) and str(each) not in ("", "-"):
                yield str(Path(each).absolute())


def record(folder: RunFolder, paths: Iterable[str] = ()) -> None:
    """Note the run in ``folder`` as begun by this user, with these ``paths`` and those noted before.

    A state folder that cannot be written is no error here: `refuse_paths` says what is missing when that matters.
    """
    info = folder.info()
    known = _known(folder) or _Known(info.run)
    sources = [*(source.path for source in info.sources), *filter(None, (info.follows,))]
    paths = dict.fromkeys((*known.paths, *sources, *paths))
    roots = dict.fromkeys((*known.roots, *info.roots))
    _keep(folder, msgspec.structs.replace(known, paths=tuple(paths), roots=tuple(roots)))


def note_targets(folder: RunFolder, question: str, targets: str) -> None:
    """Note the targets file that this user named for the ``question`` of the run in ``folder``, given by its digest."""
    with contextlib.suppress(OSError):
        known = _known(folder) or _Known(folder.info().run)
        path = str(Path(targets).absolute())
        _keep(folder, msgspec.structs.replace(known, targets=path, sha256=_digest(path), question=question))


def targets_of(folder: RunFolder, question: str) -> str:
    """The targets file that this user named for this question of the run in ``folder``; empty where none is known.

    Raises UsageError where it is another file by now.
    """
    known = _known(folder)
    if known is None or not question or known.question != question:
        return ""
    with contextlib.suppress(OSError):
        if _digest(known.targets) == known.sha256:
            return known.targets
    raise UsageError(
        f"{folder.path}: the targets file {known.targets} is not what it was when it was named for this run; "
        f"name the one that is meant: --targets FILE"
    )


def allow_for_process(paths: Iterable[str]) -> None:
    """Note that this process's user named these paths for a run that is there already."""
    _allowed.update(paths)


def refuse_paths(folder: RunFolder, roots: Sequence[Path]) -> None:
    """Raise UsageError where the run in ``folder`` names a file that it may not choose (`evalcore.trust`).

    ``roots`` is the machine's setting.
    """
    info, known = folder.info(), _known(folder) or _Known("")
    exact = {*known.paths, *_allowed}
    reads, writes, requests = [*filter(None, (info.follows,))], list[str](), [*_heads(folder)]
    if not requests or (folder.path / MANIFEST).is_file():
        # Else it is planned anew from what its sweep was begun with: nothing of these is read.
        reads += [file for source in info.sources for file in source.files]
        requests.append(_Asked(info.request))
    for asked in requests:
        reads += _read(info.evaluator, asked)
        writes += _written(info.evaluator, asked)
    # A pattern or a folder that its user named stands for what is in it, also by links.
    reads = [file for name in reads if name not in exact for file in stands_for(name)]
    # What is not there is not read: that it is missing is told where it is missed.
    paths = [*filter(os.path.lexists, [*_inside(folder.path), *reads]), *writes]
    begun = "begun with it" if known.run else "begun by you on this machine"
    then = f"this run was not {begun}. Start it anew, or allow the folder of its files: EVALQ_ROOTS=DIR"
    # A folder that its user named as an input is read as a whole.
    within: tuple[str | Path, ...] = (folder.path, Path.cwd(), *roots, *known.paths)
    for path in dict.fromkeys(paths):
        if path not in exact:
            refuse(Writer.RUN_FOLDER, Thing.PATH, path, str(folder.path), then, within)


def _inside(folder: Path) -> Iterator[str]:
    """What a sweep reads and writes in its own folder: a link there would be followed."""
    further = folder / FURTHER
    yield from map(str, (*(folder / name for name in (*SWEPT, "spool")), *further.glob("*"), *further.glob("*/*")))


def may_read(folder: RunFolder, path: str) -> bool:
    """Whether the run in ``folder`` may choose ``path`` to be read: below it or here, or named when it was begun."""
    known = _known(folder) or _Known("")
    within: tuple[str | Path, ...] = (folder.path, Path.cwd(), *known.paths)
    return path in {*known.paths, *_allowed} or allows(Writer.RUN_FOLDER, Thing.PATH, path, within)


def roots_of(folder: RunFolder) -> list[str]:
    """Those folders of run.json under which a worker that is started for the run may read."""
    known = _known(folder) or _Known("")
    exact, within = {*known.roots, *_allowed}, (folder.path, Path.cwd())
    return [
        root for root in folder.info().roots if root in exact or allows(Writer.RUN_FOLDER, Thing.PATH, root, within)
    ]


def _heads(folder: RunFolder) -> Iterator[_Asked]:
    """What the sweeps in ``folder`` were begun with; a damaged head is an error to whoever reads all of it."""
    for path in (folder.path / HEAD, folder.path / ASKED, *(folder.path / FURTHER).glob(f"*/{HEAD}")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            yield msgspec.json.decode(read_plain(path), type=_Asked)


def _digest(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _note_path(folder: RunFolder) -> Path:
    """The note about a run, by its id: what it says holds for a copy of the folder, too."""
    return state_folder() / "runs" / f"{hashlib.sha256(folder.info().run.encode()).hexdigest()[:32]}.json"


def _known(folder: RunFolder) -> _Known | None:
    """What this user's state says of the run in ``folder``; None where it says nothing that can be relied on."""
    with contextlib.suppress(OSError, EvalqError, msgspec.DecodeError):
        path = _note_path(folder)
        if all(_private(each) for each in (state_folder(), path.parent, path)):
            known = msgspec.json.decode(read_plain(path), type=_Known)
            return known if known.run == folder.info().run else None
    return None


def _private(path: Path) -> bool:
    """Whether nobody but this user (and root) can have written there."""
    found = path.lstat()
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o022


def _keep(folder: RunFolder, known: _Known) -> None:
    with contextlib.suppress(OSError):
        path = _note_path(folder)
        for each in (state_folder(), path.parent):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _private(state_folder()) and _private(path.parent):
            write_atomic(path, msgspec.json.encode(known) + b"\n", mode=0o600)
