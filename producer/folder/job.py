"""A job: one evaluation somebody asked for, from its request to a run folder and back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Params, Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import ConfigError, EvalqError, InputChanged, InputError, StorageError, UsageError, WireError
from evalq.evalcore.files import open_input, open_unlinked, write_atomic
from evalq.evalcore.model.canonical import canonical_json, digest, uncollected
from evalq.evalcore.model.manifest import Header, PlannedInput, Span, read_span
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.cut import opened
from evalq.evalcore.records.digests import checked_key, new_key
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES, Source, discover, format_suffixes, spool
from evalq.evalcore.version import code_version
from evalq.producer.folder.documents import request_fact, short, whole_request
from evalq.producer.folder.files import KEY, RUNS
from evalq.producer.folder.journal import Replanned, drop_answers
from evalq.producer.folder.manifest import Manifest
from evalq.producer.folder.own_runs import allow_for_process, named_paths, record, roots_of
from evalq.producer.folder.run_folder import FolderTaken, RunFolder

# The key of a run's chunks in its folder, for its owner's eyes alone (see `evalq.evalcore.records.digests`).

_OWNER_ALONE = 0o600
_MOST_KEY_BYTES = 1024


def _keep_key(folder: RunFolder, key: str = "") -> str:
    """Write ``key`` (a new one where none is given) to the folder, on disk when this returns; returns it.

    Raises OSError.
    """
    key = key or new_key()
    write_atomic(folder.path / KEY, key.encode() + b"\n", mode=_OWNER_ALONE)
    return key


def read_key(folder: RunFolder) -> str:
    """The key that a run's chunks were planned with. Raises WireError that says what to do where there is none."""
    path = folder.path / KEY
    try:
        # Through no link: who may write in the folder could have another file of the user's taken for the key.
        with open_unlinked(path) as stream:
            return checked_key(stream.read(_MOST_KEY_BYTES).decode("ascii").strip())
    except PermissionError as error:
        whose = "only who began the run, or runs as root, can resume it"
        raise WireError(f"{path} cannot be read: {error.strerror}; {whose}") from error
    except (OSError, ValueError, WireError) as error:
        reason = "it is a symbolic link" if path.is_symlink() else getattr(error, "strerror", None) or error
        raise WireError(f"{path} is damaged: {reason}; put it back (from a backup), or start the run anew") from error


# The ids of runs: a new one each time, or with ``--once`` the same for the same key and the same work.

_ID_DIGITS = 16


def new_run_id(evaluator: str) -> str:
    """An id that no run has yet."""
    return f"{evaluator}-{secrets.token_hex(5)}"


def once_run_id(evaluator: str, work: bytes) -> str:
    """The id of the run that does ``work``, in which the ``--once`` key is a part."""
    return f"{evaluator}-{digest(work)[:_ID_DIGITS]}"


# How a run is asked for: where its folder is, what of the input it takes, and by which names it goes.


class RunOptions(msgspec.Struct, frozen=True):
    """What a command was asked for, apart from the evaluator's own request.

    ``out`` is the run folder itself, ``under`` a folder in which it gets the first free name like ``name``, or like its
    evaluator's.
    """

    out: Path | None = None
    under: Path | None = None
    name: str = ""
    chunk_size: int | None = None
    limit: int | None = None
    suite: str = "default"
    priority: str = "bulk"
    tags: dict[str, str] = {}
    once: str = ""
    unpack_bytes: int = MAX_UNPACKED_BYTES


# The inputs of a begun run, which may be gone or be something else by now.


def open_source(source: Source) -> BufferedReader:
    """Its bytes. Raises InputChanged where there is no file (any more) that can be read."""
    with _there(source):
        return open_input(source.path)


def read_source(source: Source, span: Span) -> bytes:
    """Those of ``span``; fewer if the file has become shorter. Raises InputChanged as `open_source` does."""
    with _there(source):
        return read_span(source.path, span)


def total_bytes(sources: Sequence[Source]) -> int:
    """Their sizes. Raises InputChanged as `open_source` does."""
    total = 0
    for source in sources:
        with _there(source):
            total += Path(source.path).stat().st_size
    return total


def _absolute(source: Source) -> Source:
    """The same from wherever it is read."""
    return msgspec.structs.replace(source, path=str(Path(source.path).absolute()))


def _root_of(source: Source) -> Path:
    """The folder a planned path is relative to: the current one, or the input's own where it lies elsewhere."""
    real, here = Path(os.path.realpath(source.path)), Path.cwd().resolve()
    return here if real.is_relative_to(here) else real.parent


def _below_root(source: Source) -> str:
    """Where it is below `_root_of`. Raises InputError for a link to what no plan can name."""
    # Workers look below roots of their own, and must not follow a link out of them: the plan has no links.
    real = os.path.realpath(source.path)
    if is_text(source.path) and not is_text(real):
        raise InputError("no input", [(source.given, f"it leads to {real!a}, which is not text in UTF-8: rename it")])
    return os.path.relpath(real, _root_of(source))


@contextlib.contextmanager
def _there(source: Source) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        reason = "it was there when the run was planned, and is gone: put it back, or start a new run"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from None
    except OSError as error:
        # Too many files are open here, or the disk fails: nothing is wrong with this one.
        if error.errno in StorageError.NO_FILES | StorageError.NO_DISK:
            raise
        reason = f"it can no longer be read: {error.strerror or error}"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from error


T = TypeVar("T")
_TAKEN_SECONDS = 0.02


class RunExistsError(Exception):
    """A run of the same ``--once`` key, parameters and input was begun before, in ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


class Job:
    """Everything needed to start a run or resume it."""

    def __init__(
        self,
        header: Header,
        folder: RunFolder,
        sources: list[Source],
        request: Request,
        manifest: Manifest,
        key: str,
        params: Params | None = None,
    ) -> None:
        """``key``: that of its chunks' digests, as it is kept in ``folder``; ``params`` are the header's, where they
        are validated already.
        """
        self.header = header
        self.folder = folder
        self.sources = sources
        self.request = request
        self.manifest = manifest
        self.key = key
        self.evaluator: Evaluator[Any, Any] = plugins.get(header.evaluator)
        self.params: Params = params or validate(self.evaluator.Params, header.params, str(folder.path / "manifest"))

    @property
    def run(self) -> str:
        """The run's id."""
        return self.header.run

    @property
    def total_bytes(self) -> int:
        """Size of all inputs."""
        return total_bytes(self.sources)

    @property
    def roots(self) -> list[Path]:
        """Folders a worker needs to be allowed to read, for the planned paths to be found."""
        own = (str(_root_of(source)) for source in self.sources)
        return [Path(root) for root in dict.fromkeys((*roots_of(self.folder), *own))]

    @classmethod
    @stdout_to_stderr()
    @uncollected()
    def start(
        cls, evaluator: Evaluator[Any, Any], request: Request, asked: RunOptions, folder: RunFolder | None = None
    ) -> Job:
        """A new run: inputs found and unpacked, columns checked, header and run.json written; in ``folder``, where a
        sweep recorded its inputs, under the id that it has there.

        Raises InputError, ConfigError, UsageError or StorageError, and leaves no folder behind then; RunExistsError
        for --once.
        """
        request = evaluator.command.request(request)
        params = validate(evaluator.Params, request.params, f"{evaluator.name} parameters")
        if not request.inputs:
            raise InputError("no input given: name files, folders, globs or - for standard input")
        sources = discover(request.inputs, format_suffixes(evaluator.records.format), evaluator.gathering.endings)
        if folder is not None:
            return cls._filled(folder, folder.info().run, evaluator, params, sources, request, asked)
        # With a key, the same request finds the same run: its id is made of all that could make it another.
        run = _once_id(evaluator, params, sources, asked) or new_run_id(evaluator.name)
        try:
            return begin_folder(
                asked,
                evaluator.name,
                run,
                lambda made: cls._filled(made, run, evaluator, params, sources, request, asked),
                again=all(source.path != "-" for source in sources),
            )
        except RunExistsError:
            files = [file for source in map(_absolute, sources) for file in (source.path, *source.files)]
            allow_for_process(
                (*named_paths(evaluator.name, request), *files, *(str(_root_of(source)) for source in sources))
            )
            raise

    @classmethod
    def _filled(
        cls,
        folder: RunFolder,
        run: str,
        evaluator: Evaluator[Any, Any],
        params: Params,
        found: list[Source],
        request: Request,
        asked: RunOptions,
    ) -> Job:
        """The run begun in ``folder``, which may have its name only later."""
        begun, began = folder.begun, datetime.now(UTC).isoformat(timespec="seconds")
        try:
            line, most = evaluator.gathering.line, asked.unpack_bytes
            plain = [_absolute(spool(source, folder.spool, line, most)) for source in found]
            columns = [_columns(source, evaluator) for source in plain]
            sources = [msgspec.structs.replace(source, path=folder.settled(source.path)) for source in plain]
            header = _header(run, evaluator, params, sources, columns, asked)
            manifest, key = Manifest(folder), _keep_key(folder)
            if not begun:  # run.json is the last, and makes it a run
                manifest.start(header)
            folder.note(
                run=run,
                evaluator=evaluator.name,
                **({} if begun else {"state": "open", "epoch": 0, "started": began}),
                tags=asked.tags,
                suite=asked.suite,
                name=asked.name,
                sources=msgspec.to_builtins(sources),
                roots=list(dict.fromkeys(str(_root_of(source)) for source in sources)),
                request=request_fact(request),
            )
            record(folder, named_paths(evaluator.name, request))
            if begun:  # the manifest ends the calls of a sweep: until it is there, these are what is resumed
                manifest.start(header)
                folder.note(state="open")
        except OSError as error:
            if begun:
                raise  # what it has is kept, and whoever drives it says how to go on
            raise _unusable(error, folder, found) from error
        # The same data once, where there is much of it: what is planned holds all that was asked.
        request = whole_request(msgspec.structs.replace(request, params=short(request.params)), header.params)
        return cls(header, folder, sources, request, manifest, key, params)

    @classmethod
    @uncollected()
    def load(cls, folder: RunFolder) -> Job:
        """The run begun in ``folder``.

        Raises ConfigError when this code is not the one it was begun with, UsageError for a run that follows a log.
        """
        info = folder.info()
        if info.follows:
            raise UsageError(f"{folder.path}: this run follows a log; {folder.next_step('following')}")
        manifest = Manifest(folder)
        header = manifest.load()
        if header.code_version != code_version():
            raise ConfigError(
                f"{folder.path}: the run was begun by evalq code {header.code_version}, this is {code_version()}; "
                "answers of different code are never mixed: resume with that version, or start a new run"
            )
        request = whole_request(info.request, header.params)
        return cls(header, folder, info.sources, request, manifest, read_key(folder))

    def adopt(self, key: str) -> None:
        """Plan by the ``key`` under which another folder has begun this very run.

        Raises Replanned where chunks were planned already.
        """
        key, had = checked_key(key), self.manifest.begun
        if had:
            drop_answers(self.folder)  # first: without a plan they would be damage
            self.manifest.start(self.header)
        self.key = _keep_key(self.folder, key)
        if had:
            raise Replanned(f"{self.folder.place}: another folder has begun the run anew, and what it had is left out")


def planned_header(run: str, evaluator: Evaluator[Any, Any], request: Request, asked: RunOptions) -> Header:
    """The header that a run of this ``request`` is started with. Raises what `Job.start` raises."""
    request = evaluator.command.request(request)
    params = validate(evaluator.Params, request.params, f"{evaluator.name} parameters")
    sources = discover(request.inputs, format_suffixes(evaluator.records.format), evaluator.gathering.endings)
    plain = [_absolute(source) for source in sources]
    return _header(run, evaluator, params, plain, [_columns(source, evaluator) for source in plain], asked)


def new_path(asked: RunOptions, evaluator: str, run: str) -> Path:
    """Where the run's folder goes. Raises RunExistsError where this very run has one already."""
    path, number = asked.out or RUNS / run, 1
    if asked.under is not None:
        path = asked.under / folder_name(asked.name or evaluator)
    while True:
        if (path / "run.json").is_file() and _is_run(path, run):
            raise RunExistsError(path)
        if asked.under is None or not path.exists():
            return path
        number += 1
        path = asked.under / f"{folder_name(asked.name or evaluator)}-{number}"


def folder_name(name: str) -> str:
    """What a run's folder is called: brackets and the like, as in NAME[target=a], mean something to shells."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-")


def begin_folder(
    asked: RunOptions, evaluator: str, run: str, fill: Callable[[RunFolder], T], *, again: bool = True
) -> T:
    """What ``fill`` makes of a new run folder, which is seen under its name when that is done, and not before.

    Raises what ``fill`` and `RunFolder.begin` raise, and RunExistsError where this very run has a folder already.
    Without ``again`` it is filled once: its inputs can be read once.
    """
    while True:
        path = new_path(asked, evaluator, run)
        try:
            with RunFolder.begin(path) as folder:
                return fill(folder)
        except UsageError:
            if _is_run(path, run):  # somebody was first since it was looked for
                raise RunExistsError(path) from None
            raise
        except FolderTaken:
            if not again:
                raise UsageError(f"{path}: another process began a run there; name another folder with --out") from None
            # Whoever was first gives the folder its run.json in a moment, and the next look finds that.
            time.sleep(_TAKEN_SECONDS)


def _is_run(path: Path, run: str) -> bool:
    with contextlib.suppress(WireError, StorageError, UsageError):  # unreadable: some other run's, then
        return RunFolder(path).info().run == run
    return False


def _header(
    run: str,
    evaluator: Evaluator[Any, Any],
    params: Params,
    sources: list[Source],
    columns: list[tuple[str, ...]],
    asked: RunOptions,
) -> Header:
    planned = []
    for source, names in zip(sources, columns, strict=True):
        planned.append(PlannedInput(name=source.name, given=source.given, path=_below_root(source), columns=names))
    return Header(
        run=run,
        evaluator=evaluator.name,
        evaluator_version=evaluator.version,
        code_version=code_version(),
        params=params.model_dump(mode="json"),
        inputs=tuple(planned),
        suite=asked.suite,
        priority="interactive" if asked.priority == "interactive" else "bulk",
        chunk_size=asked.chunk_size,
        limit=asked.limit,
    )


def _unusable(error: OSError, folder: RunFolder, sources: list[Source]) -> EvalqError:
    """Why a run cannot begin: an input that cannot be read, or a folder that cannot be written."""
    given = {path: source.given for source in sources for path in (source.path, _absolute(source).path)}
    if error.filename in given and error.errno not in StorageError.NO_FILES | StorageError.NO_DISK:
        return InputError("an input cannot be read", [(given[error.filename], error.strerror or str(error))])
    if isinstance(error.filename, str):
        # The folder still has its private name, which its user has never seen.
        error.filename = folder.settled(error.filename)
    said = StorageError.of(error, folder.place, "run the command again, or name another folder with --out")
    passes = error.errno in StorageError.NO_SPACE | StorageError.NO_FILES | StorageError.NO_DISK
    return said if passes else UsageError(str(said))


def _columns(source: Source, evaluator: Evaluator[Any, Any]) -> tuple[str, ...]:
    with opened(source, evaluator.records.format, evaluator.records.columns) as cutter:
        return cutter.columns


def _once_id(evaluator: Evaluator[Any, Any], params: Params, sources: list[Source], asked: RunOptions) -> str:
    """The same id for the same key, code, parameters, plan, suite and inputs (their content, and the names that reports
    show); empty without a key. How urgent a run is, and where its folder is, makes it no other one.
    """
    if not asked.once:
        return ""
    if any(source.path == "-" for source in sources):
        raise ConfigError("--once needs inputs that can be read twice, not standard input")
    what = [evaluator.name, evaluator.version, code_version(), params.model_dump(mode="json")]
    parts = [asked.once, digest(canonical_json([*what, asked.chunk_size, asked.limit, asked.suite]))]
    for source in sources:
        parts += [source.name, source.given, *source.members]
        for path in source.files:
            with open_input(path) as stream:
                parts.append(hashlib.file_digest(stream, "sha256").hexdigest())
    # No name or path has a zero byte, so no two lists read alike.
    return once_run_id(evaluator.name, chr(0).join(parts).encode(errors="surrogateescape"))
