"""The files that are asked for with -o, by their endings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.plug_in import unprinted
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.records.inputs import stands_for
from evalq.producer.folder.files import is_unfinished
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs import formats
from evalq.producer.outputs.formats import named

__all__ = ["check_output", "check_outputs", "endings", "names", "read_files", "refuse_read", "write_output"]

_FINAL = ("manifest.json", "results.yaml", "cases.json")
"""Of a finished run, beside what an unfinished one has; its reports and records would be written as they are."""


def endings() -> list[str]:
    """What there is a format for."""
    found = [path for folder in formats.__path__ for path in Path(folder).glob("*.py")]
    return sorted(f".{path.stem}" for path in found if not path.stem.startswith("_"))


def names() -> list[str]:
    """The whole names that there is a format for."""
    return sorted(f"{found.stem.replace('_', '-')}.json" for found in Path(named.__path__[0]).glob("[!_]*.py"))


def check_output(path: Path, reads: Iterable[str] = ()) -> None:
    """Raise UsageError for what cannot be written (a suffix, or for want of a package), before anything is computed.

    Nor over one of the files that the run ``reads``: recorded answers may have been paid for.
    """
    if path.suffix not in endings():
        known = ", ".join(endings())
        raise UsageError(
            f"-o {path}: unknown suffix {path.suffix!r}; there are {known}, and the name {', '.join(names())}"
        )
    if path.is_dir():
        raise UsageError(f"-o {path}: a folder has this name: name another")
    refuse_read(path, reads)
    check = getattr(_format(path), "check", None)
    if check is not None:
        check(path)


def refuse_read(path: Path, reads: Iterable[str]) -> None:
    """Raise UsageError where ``path`` is one of the files that a command ``reads``."""
    if path.exists() and any(_is_same(path, given) for given in reads):
        raise UsageError(f"-o {path}: this file is read here: name another")


def read_files(evaluator: Evaluator[Any, Any], request: Request, *others: str | Path | None) -> list[str]:
    """The paths and patterns of what a run reads by ``request``, and ``others`` where there are any."""
    named = [request.options.get(option.name) for option in evaluator.command.options if option.kind == "path"]
    listed = [each for value in named for each in (value if isinstance(value, (list, tuple)) else [value])]
    return [str(each) for each in (*request.inputs, *listed, *others) if each]


def check_outputs(paths: Iterable[Path], folder: RunFolder) -> None:
    """`check_output` of what is to be written of the run in ``folder``: nor over what that run read or consists of."""
    info = folder.info()
    reads = read_files(registry.get(info.evaluator), info.request)
    reads += [file for source in info.sources for file in source.files]
    for path in paths:
        check_output(path, reads)
        own = is_unfinished(path.name) or path.name in _FINAL
        if own and path.exists() and path.parent.samefile(folder.path):
            raise UsageError(f"-o {path}: the run itself consists of this file: name another")


def _is_same(path: Path, given: str) -> bool:
    # Of a folder the files in it, too.
    return any(Path(each).exists() and path.samefile(each) for each in stands_for(given))


@unprinted()
def write_output(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """One file asked for with -o, made from the run folder. Raises StorageError when it cannot be written."""
    check_outputs([path], folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _format(path).write(path, folder, evaluator, options)
    except OSError as error:
        raise StorageError.of(
            error, path, f"write it again: evalq report {folder.named()} -o {shlex.quote(str(path))}"
        ) from error


def _format(path: Path) -> Any:
    own = next((name for name in names() if path.name == name or path.name.endswith(f".{name}")), "")
    if own:
        return import_module(f"{named.__name__}.{own.removesuffix('.json').replace('-', '_')}")
    return import_module(f"{formats.__name__}{path.suffix}")
