"""A job: one evaluation, from its request to a run folder and back."""

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
from evalq.evalcore.contract.evaluator import Beside, Evaluator, Params, Request, begin_request, inputs_of, plain_input
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.contract.scoring import needs_scorer
from evalq.evalcore.errors import ConfigError, EvalqError, InputChanged, InputError, StorageError, UsageError, WireError
from evalq.evalcore.files import open_input, open_unlinked, replacing, write_atomic
from evalq.evalcore.model.canonical import canonical_json, digest, uncollected
from evalq.evalcore.model.manifest import Header, PlannedInput, Span, read_span
from evalq.evalcore.naming import is_text
from evalq.evalcore.records.cut import opened
from evalq.evalcore.records.digests import checked_key, new_key
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES, Source
from evalq.evalcore.version import code_version
from evalq.producer.folder.documents import request_fact, short, whole_request
from evalq.producer.folder.files import KEY, PROMPTS, RUNS
from evalq.producer.folder.journal import Replanned, drop_answers
from evalq.producer.folder.manifest import Manifest
from evalq.producer.folder.own_runs import allow_for_process, named_paths, record, roots_of
from evalq.producer.folder.run_folder import FolderTaken, RunFolder

# The key of a run's chunks, readable by its owner only (see `evalq.evalcore.records.digests`).

_OWNER_ALONE = 0o600
_MOST_KEY_BYTES = 1024


def _keep_key(folder: RunFolder, key: str = "") -> str:
    """Write ``key`` (or a new one) to the folder, synced; returns it.

    Raises OSError.
    """
    key = key or new_key()
    write_atomic(folder.path / KEY, key.encode() + b"\n", mode=_OWNER_ALONE)
    return key


def read_key(folder: RunFolder) -> str:
    """The key that a run's chunks were planned with. Raises WireError without one."""
    path = folder.path / KEY
    try:
        # Not through a link: somebody who may write in the folder could make evalq read another file of the user's.
        with open_unlinked(path) as stream:
            return checked_key(stream.read(_MOST_KEY_BYTES).decode("ascii").strip())
    except PermissionError as error:
        whose = "only the user who began the run, or root, can resume it"
        raise WireError(f"{path} cannot be read: {error.strerror}; {whose}") from error
    except (OSError, ValueError, WireError) as error:
        reason = "it is a symbolic link" if path.is_symlink() else getattr(error, "strerror", None) or error
        raise WireError(f"{path} is damaged: {reason}; put it back (from a backup), or start the run anew") from error


# The ids of runs: new each time, or with ``--once`` the same for the same key and the same work.

_ID_DIGITS = 16


_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"
"""Letters and digits that people do not take for each other; no dot, which separates the parts of a sweep's name."""
_ID_WORD = 24


def new_run_id(evaluator: str, about: str) -> str:
    """An id that no run has yet, and that people can read: what is ``about`` (its target or input), and when (UTC).

    Six letters at random keep apart the runs of a minute.
    """
    word = re.sub(r"[^a-z0-9]+", "-", about.lower())[:_ID_WORD].strip("-")
    mark = "".join(secrets.choice(_LETTERS) for _ in range(6))
    return "-".join(filter(None, (evaluator, word, f"{datetime.now(UTC):%m%d-%H%M}", mark)))


def once_run_id(evaluator: str, work: bytes) -> str:
    """The id of the run that does ``work``, which includes the ``--once`` key."""
    return f"{evaluator}-{digest(work)[:_ID_DIGITS]}"


# The options of a run: its folder, its part of the input, and its names.


class RunOptions(msgspec.Struct, frozen=True):
    """The options of a run beside the evaluator's request.

    ``out`` is the run folder itself; ``under`` is a folder in which it gets the first free name after ``name`` or the
    evaluator. ``whole``: the plan has all parameters, for workers that finish the run without its folder. ``scratch``
    is the folder of inputs that a program gave as data: their names there say nothing about the run.
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
    keep_prompts: bool = True
    whole: bool = False
    scratch: str = ""


# The inputs of a begun run, which may have changed since.


def open_source(source: Source) -> BufferedReader:
    """The bytes of an input. Raises InputChanged if the file cannot be read any more."""
    with _source_readable(source):
        return open_input(source.cut_path)


def read_source(source: Source, span: Span) -> bytes:
    """The bytes of ``span``; fewer if the file has become shorter. Raises InputChanged as `open_source` does."""
    with _source_readable(source):
        return read_span(source.cut_path, span)


def total_bytes(sources: Sequence[Source]) -> int:
    """The size of all inputs. Raises InputChanged as `open_source` does."""
    total = 0
    for source in sources:
        with _source_readable(source):
            total += Path(source.cut_path).stat().st_size
    return total


def _absolute(source: Source) -> Source:
    """The source with an absolute path."""
    return msgspec.structs.replace(source, path=str(Path(source.path).absolute()))


def _without_scratch(request: Request, scratch: str, folder: RunFolder) -> Request:
    """The request with names in ``folder`` for files of a scratch folder, which will be gone."""
    if not scratch:
        return request
    inside = folder.settled(str(folder.spool))

    def named(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(named, value))
        return f"{inside}{value[len(scratch) :]}" if isinstance(value, str) and value.startswith(scratch) else value

    options = {name: named(value) for name, value in request.options.items()}
    return msgspec.structs.replace(request, inputs=named(list(request.inputs)), options=options)


def _settled(source: Source, folder: RunFolder) -> Source:
    """The source with its paths once ``folder`` has its final name."""
    joined = folder.settled(source.joined) if source.joined else msgspec.UNSET
    return msgspec.structs.replace(source, path=folder.settled(source.path), joined=joined)


def _root_of(source: Source) -> Path:
    """The folder that a planned path is relative to: the current one, or the input's folder outside of it."""
    real, here = Path(os.path.realpath(source.cut_path)), Path.cwd().resolve()
    return here if real.is_relative_to(here) else real.parent


def _below_root(source: Source) -> str:
    """The path below `_root_of`. Raises InputError for a link to a path that is not UTF-8."""
    # The plan has no links: workers read below their own roots, and must not follow a link out of them.
    real = os.path.realpath(source.cut_path)
    if is_text(source.cut_path) and not is_text(real):
        raise InputError("no input", [(source.given, f"it leads to {real!a}, which is not text in UTF-8: rename it")])
    return os.path.relpath(real, _root_of(source))


@contextlib.contextmanager
def _source_readable(source: Source) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        reason = "it is gone since the run was planned: put it back, or start a new run"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from None
    except OSError as error:
        # Too many open files, or a failing disk: not a fault of this file.
        if error.errno in StorageError.NO_FILES | StorageError.NO_DISK:
            raise
        reason = f"it can no longer be read: {error.strerror or error}"
        raise InputChanged("an input changed since its run began", [(source.given, reason)]) from error


def _keep_questions(folder: RunFolder, request: Request) -> None:
    """Write what the cases of recorded outputs ask, which pages show; nothing if no case has an input."""
    # Outputs are evaluated without the inputs of cases, so nothing about them is an error.
    with contextlib.suppress(EvalqError, ValueError, TypeError, RecursionError):
        questions = iter(request.questions)
        if (first := next(questions, None)) is not None:
            with replacing(folder.path / PROMPTS) as out:
                for question in (first, *questions):
                    out.write(msgspec.json.encode(question) + b"\n")


T = TypeVar("T")
_TAKEN_SECONDS = 0.02


class RunExistsError(Exception):
    """A run with the same ``--once`` key, parameters and input has already begun, in ``path``."""

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
        """``key`` is that of the chunks' digests, from ``folder``; ``params`` the header's, if already validated."""
        self.header = header
        self.folder = folder
        self.sources = sources
        self.request = request
        self.manifest = manifest
        self.key = key
        self.evaluator: Evaluator[Any, Any] = plugins.get(header.evaluator)
        params = params or validate(self.evaluator.Params, header.params, str(folder.path / "manifest"))
        self.params: Params = self.evaluator.command.attach(params, folder.final_path)

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
        """The folders that a worker must be allowed to read for the planned paths."""
        own = (str(_root_of(source)) for source in self.sources)
        return [Path(root) for root in dict.fromkeys((*roots_of(self.folder), *own))]

    @classmethod
    @stdout_to_stderr()
    @uncollected()
    def start(
        cls, evaluator: Evaluator[Any, Any], request: Request, options: RunOptions, folder: RunFolder | None = None
    ) -> Job:
        """Start a run: find and unpack inputs, check columns, write header and run.json. After a sweep, ``folder`` has
        its inputs, and the run keeps the id there.

        Raises InputError, ConfigError, UsageError or StorageError, and removes the folder then; RunExistsError for
        --once.
        """
        request, beside = begin_request(evaluator, request, whole=folder is not None or options.whole)
        params = validate(evaluator.Params, request.params, f"{evaluator.name} parameters")
        if not request.inputs:
            raise InputError("no input given: name files, folders, globs or - for standard input")
        sources = inputs_of(evaluator, request)
        if folder is not None:
            return cls._fill(folder, folder.info().run, evaluator, params, sources, request, options)
        # With a --once key, the id depends on everything that could make it another run.
        run = _once_id(evaluator, params, sources, options) or new_run_id(evaluator.name, Path(sources[0].name).stem)
        try:
            return begin_folder(
                options,
                evaluator.name,
                run,
                lambda made: cls._fill(made, run, evaluator, params, sources, request, options, beside),
                again=all(source.path != "-" for source in sources),
            )
        except RunExistsError:
            files = [file for source in map(_absolute, sources) for file in (source.path, *source.files)]
            allow_for_process(
                (*named_paths(evaluator.name, request), *files, *(str(_root_of(source)) for source in sources))
            )
            raise

    @classmethod
    def _fill(
        cls,
        folder: RunFolder,
        run: str,
        evaluator: Evaluator[Any, Any],
        params: Params,
        found: list[Source],
        request: Request,
        options: RunOptions,
        beside: Beside | None = None,
    ) -> Job:
        """Begin the run in ``folder``, which may get its final name later."""
        begun, began = folder.begun, datetime.now(UTC).isoformat(timespec="seconds")
        try:
            most = options.unpack_bytes
            plain = [_absolute(plain_input(evaluator, source, folder.spool, most)) for source in found]
            columns = [_columns(source, evaluator) for source in plain]
            if beside is not None:
                beside.write(folder.path)
                plain = [beside.join(source, folder.spool) for source in plain]
            sources = [_settled(source, folder) for source in plain]
            request = _without_scratch(request, options.scratch, folder)
            header = _header(run, evaluator, params, sources, columns, options)
            manifest, key = Manifest(folder), _keep_key(folder)
            if not begun:  # run.json comes last, and makes it a run
                manifest.start(header)
            folder.note(
                run=run,
                evaluator=evaluator.name,
                **({} if begun else {"state": "open", "epoch": 0, "started": began}),
                tags=options.tags,
                suite=options.suite,
                name=options.name,
                sources=msgspec.to_builtins(sources),
                roots=list(dict.fromkeys(str(_root_of(source)) for source in sources)),
                request=request_fact(request),
                **({} if options.keep_prompts else {"keep_prompts": False}),
            )
            record(folder, named_paths(evaluator.name, request))
            if options.keep_prompts and not (begun and folder.info().target):  # a target's prompts are there
                _keep_questions(folder, request)
            if begun:  # the manifest ends a sweep's calls: until then, a resume continues them
                manifest.start(header)
                folder.note(state="open")
        except OSError as error:
            if begun:
                raise  # keep the folder; the sweep's driver reports how to continue
            raise _unusable(error, folder, found) from error
        request.questions = ()
        # Share long parameters with the header instead of keeping them twice.
        request = whole_request(msgspec.structs.replace(request, params=short(request.params)), header.params)
        return cls(header, folder, sources, request, manifest, key, params)

    @classmethod
    @uncollected()
    def load(cls, folder: RunFolder) -> Job:
        """The run begun in ``folder``.

        Raises ConfigError if another code version began it, UsageError for a run that follows a log.
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
                + ("; name its scoring function with --scorer FILE.py" if needs_scorer(header.evaluator) else "")
            )
        request = whole_request(info.request, header.params)
        return cls(header, folder, info.sources, request, manifest, read_key(folder))

    def adopt(self, key: str) -> None:
        """Plan with the ``key`` of another folder that has begun this very run.

        Raises Replanned if chunks were already planned.
        """
        key, had = checked_key(key), self.manifest.begun
        if had:
            drop_answers(self.folder)  # first: answers without a plan would be damage
            self.manifest.start(self.header)
        self.key = _keep_key(self.folder, key)
        if had:
            raise Replanned(
                f"{self.folder.final_path}: another folder has begun the run anew, so the answers here are dropped"
            )


def planned_header(run: str, evaluator: Evaluator[Any, Any], request: Request, options: RunOptions) -> Header:
    """The header that a run of this ``request`` is started with. Raises what `Job.start` raises."""
    request = evaluator.command.request(request)
    params = validate(evaluator.Params, request.params, f"{evaluator.name} parameters")
    sources = inputs_of(evaluator, request)
    plain = [_absolute(source) for source in sources]
    return _header(run, evaluator, params, plain, [_columns(source, evaluator) for source in plain], options)


def new_path(options: RunOptions, evaluator: str, run: str) -> Path:
    """The path of the run's folder. Raises RunExistsError if this very run already has one."""
    path, number = options.out or RUNS / run, 1
    if options.under is not None:
        path = options.under / folder_name(options.name or evaluator)
    while True:
        if (path / "run.json").is_file() and _is_run(path, run):
            raise RunExistsError(path)
        if options.under is None or not path.exists():
            return path
        number += 1
        path = options.under / f"{folder_name(options.name or evaluator)}-{number}"


def folder_name(name: str) -> str:
    """The name of a run's folder, without characters that mean something to shells, as in NAME[target=a]."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-")


def begin_folder(
    options: RunOptions, evaluator: str, run: str, fill: Callable[[RunFolder], T], *, again: bool = True
) -> T:
    """Make a run folder with ``fill``, and give it its name after that; returns the result of ``fill``.

    Raises what ``fill`` and `RunFolder.begin` raise, and RunExistsError if this very run already has a folder.
    ``again``: ``fill`` may run more than once, which standard input does not allow.
    """
    while True:
        path = new_path(options, evaluator, run)
        try:
            with RunFolder.begin(path) as folder:
                return fill(folder)
        except UsageError:
            if _is_run(path, run):  # another process has begun it meanwhile
                raise RunExistsError(path) from None
            raise
        except FolderTaken:
            if not again:
                raise UsageError(f"{path}: another process began a run there; name another folder with --out") from None
            # The other process writes run.json in a moment; then the next attempt finds it.
            time.sleep(_TAKEN_SECONDS)


def _is_run(path: Path, run: str) -> bool:
    with contextlib.suppress(WireError, StorageError, UsageError):  # unreadable, so another run
        return RunFolder(path).info().run == run
    return False


def _header(
    run: str,
    evaluator: Evaluator[Any, Any],
    params: Params,
    sources: list[Source],
    columns: list[tuple[str, ...]],
    options: RunOptions,
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
        suite=options.suite,
        priority="interactive" if options.priority == "interactive" else "bulk",
        chunk_size=options.chunk_size,
        limit=options.limit,
    )


def _unusable(error: OSError, folder: RunFolder, sources: list[Source]) -> EvalqError:
    """The error of a run that cannot begin: an unreadable input, or an unwritable folder."""
    given = {path: source.given for source in sources for path in (source.path, _absolute(source).path)}
    if error.filename in given and error.errno not in StorageError.NO_FILES | StorageError.NO_DISK:
        return InputError("an input cannot be read", [(given[error.filename], error.strerror or str(error))])
    if isinstance(error.filename, str):
        # Not the private name, which the user has never seen.
        error.filename = folder.settled(error.filename)
    failure = StorageError.of(error, folder.final_path, "run the command again, or name another folder with --out")
    passes = error.errno in StorageError.NO_SPACE | StorageError.NO_FILES | StorageError.NO_DISK
    return failure if passes else UsageError(str(failure))


def _columns(source: Source, evaluator: Evaluator[Any, Any]) -> tuple[str, ...]:
    if source.layout is not None:
        return ()  # it will be lines of JSON
    with opened(source, evaluator.records.format, evaluator.records.columns) as cutter:
        return cutter.columns


def _once_id(evaluator: Evaluator[Any, Any], params: Params, sources: list[Source], options: RunOptions) -> str:
    """An id of key, code, parameters, plan, suite and inputs (their content, and the names that reports show); empty
    without a key. It does not depend on the priority or the folder.
    """
    if not options.once:
        return ""
    if any(source.path == "-" for source in sources):
        raise ConfigError("--once needs inputs that can be read twice, not standard input")
    what = [evaluator.name, evaluator.version, code_version(), params.model_dump(mode="json")]
    parts = [options.once, digest(canonical_json([*what, options.chunk_size, options.limit, options.suite]))]
    for source in sources:
        given = source.given.removeprefix(options.scratch) if options.scratch else source.given
        parts += [source.name, given, *source.members]
        if source.layout is not None:
            parts.append(msgspec.json.encode(source.layout).decode())
        for path in source.files:
            with open_input(path) as stream:
                parts.append(hashlib.file_digest(stream, "sha256").hexdigest())
    # No name or path has a zero byte, so no two lists read alike.
    return once_run_id(evaluator.name, chr(0).join(parts).encode(errors="surrogateescape"))
