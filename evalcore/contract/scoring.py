"""The scoring function of one's own: a Python file that the user of this process names.

No run, suite, cases file or message can choose it: they may come from anybody. Its digest is a part of the code
version, so that only workers that were started with the same file see the chunks of its runs.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from evalq.evalcore.contract.own_functions import misfit
from evalq.evalcore.contract.plugins import cached_until_named, error_with_line, forget_named, stdout_to_stderr
from evalq.evalcore.errors import ConfigError, InfrastructureError, resource_shortage

NAME = "score"
"""The evaluation that calls the function."""
_DEFAULT = "score"
_MOST = 16 << 20
_DIGITS = 16


class ScoringFile(msgspec.Struct, frozen=True):
    """A file with its bytes, and the function of it that was asked for ("" for `score`, or the only one)."""

    path: Path
    function: str
    source: bytes

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits over the bytes."""
        return hashlib.sha256(self.source).hexdigest()[:_DIGITS]


class ScoringFunction(msgspec.Struct, frozen=True):
    """The loaded function; ``name`` is "<file without .py>:<function>", and ``source`` the digest of the file."""

    name: str
    source: str
    call: Callable[[Any], Any]


_named: ScoringFile | None = None


def split_scorer(spec: str) -> tuple[Path, str]:
    """(file, function) of "FILE.py" or "FILE.py:FUNCTION". Raises ConfigError."""
    file, function = spec, ""
    if not spec.endswith(".py"):
        file, _, function = spec.rpartition(":")
    if not file.endswith(".py") or (file != spec and not function.isidentifier()):
        raise ConfigError(f"{spec}: name a Python file, as FILE.py or FILE.py:FUNCTION")
    return Path(file), function


def name_scorer(spec: str) -> None:
    """Have this process score by the function that ``spec`` names, in place of one that was named before.

    Call this only with a process's settings, never for a suite, a run or a message. Raises ConfigError for a file that
    cannot be read. It runs nothing of the file.
    """
    global _named
    found = _read(*split_scorer(spec)) if spec else None
    if found != _named:
        _named = found
        forget_named()


def _read(path: Path, function: str) -> ScoringFile:
    try:
        with path.open("rb") as stream:
            source = stream.read(_MOST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: the scoring function's file cannot be read: {error.strerror}") from None
    if len(source) > _MOST:
        raise ConfigError(f"{path}: longer than {_MOST >> 20} MiB, the limit for a scoring function's file")
    return ScoringFile(path.absolute(), function, source)


def scoring_file() -> ScoringFile | None:
    """The file that this process's user has named; None without one."""
    return _named


def needs_scorer(evaluator: str) -> bool:
    """Whether runs of this evaluator need a file that is not named here."""
    return evaluator == NAME and _named is None


def scoring_file_now() -> ScoringFile | None:
    """The named file as a process that starts now would read it; an empty one if it is gone."""
    if _named is None:
        return None
    try:
        return _read(_named.path, _named.function)
    except ConfigError:
        return ScoringFile(_named.path, _named.function, b"")


@cached_until_named
def scoring_function() -> ScoringFunction:
    """The function of the named file, loaded once. Raises ConfigError that says why it cannot be used."""
    if _named is None:
        raise ConfigError(
            "no scoring function is named here: run evalq score FILE.py INPUT; for other commands and for workers, set "
            "EVALQ_SCORER=FILE.py"
        )
    path = _named.path
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        with stdout_to_stderr():
            exec(compile(_named.source, str(path), "exec"), module.__dict__)  # noqa: S102 - the user's own program
    except (Exception, SystemExit) as error:  # any exception of the file, and sys.exit() of a script
        if lack := resource_shortage(error):
            raise InfrastructureError(f"{path} cannot be loaded: {lack}") from error
        why = f"{type(error).__name__}: {error}" if isinstance(error, SyntaxError) else error_with_line(error)
        if (
            isinstance(error, ModuleNotFoundError)
            and (path.parent / f"{str(error.name).partition('.')[0]}.py").is_file()
        ):
            why += "; it cannot import files beside it: put their code into this file, or install it as a package"
        raise ConfigError(f"{path} cannot be loaded: {why}") from error
    name, function = _function(_named, module)
    return ScoringFunction(f"{path.stem}:{name}", _named.digest, function)


def _function(file: ScoringFile, module: ModuleType) -> tuple[str, Callable[[Any], Any]]:
    own = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    name = file.function or _DEFAULT
    if name not in vars(module) and not file.function and len(own) == 1:
        (name,) = own
    function = vars(module).get(name)
    if not callable(function):
        there = f"it has {', '.join(own)}: name one, as {file.path.name}:{next(iter(own))}" if own else "define one"
        raise ConfigError(f"{file.path}: there is no function {name}(record); {there}")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{file.path}: {name} is an async function; write it with def alone")
    if why := misfit(function, "record", "output"):
        raise ConfigError(f"{file.path}: {why}")
    return name, function
