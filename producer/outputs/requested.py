"""The files that are asked for with -o: the format of each ending, and what is refused before anything is computed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import StorageError, UsageError
from evalq.evalcore.files import write_atomic
from evalq.evalcore.records.inputs import stands_for
from evalq.producer.folder.files import RECORDS, is_unfinished
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.final import render
from evalq.producer.outputs.tables import check_parquet, write_csv, write_jsonl, write_parquet
from evalq.producer.page import write_page

_FINAL = ("manifest.json", "results.yaml", "cases.json")
"""Of a finished run, beside what an unfinished one has; its reports and records would be written as they are."""


Writer = Callable[[Path, RunFolder, Evaluator[Any, Any], Mapping[str, Any]], None]
"""What makes a file of a finished run's folder, by the evaluator's options."""


def _text(fmt: str) -> Writer:
    def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
        write_atomic(path, render(fmt, evaluator, folder.report(), options).encode())

    return write


def _html(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    write_page(path, evaluator, folder.report(), folder.own(RECORDS))


def _xml(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    # Not at import, and nor is the next: they count cases as comparisons do, which few runs need.
    from evalq.producer.outputs.junit import write_junit

    write_junit(path, folder, evaluator)


def _every_eval_ever(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    from evalq.producer.outputs.cases import write_every_eval_ever

    write_every_eval_ever(path, folder, evaluator)


FORMATS: dict[str, Writer] = {
    ".csv": write_csv,
    ".html": _html,
    ".json": _text("json"),
    ".jsonl": write_jsonl,
    ".md": _text("markdown"),
    ".parquet": write_parquet,
    ".xml": _xml,
    ".yaml": _text("yaml"),
}
"""{a file's ending: what writes it}."""
NAMED: dict[str, Writer] = {"every-eval-ever.json": _every_eval_ever}
"""Formats that are asked for by a file's whole name, such as week.every-eval-ever.json."""


def check_output(path: Path, reads: Iterable[str] = ()) -> None:
    """Raise UsageError for what cannot be written (a suffix, or for want of a package), before anything is computed.

    Nor over one of the files that the run ``reads``: recorded answers may have been paid for.
    """
    if path.suffix not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise UsageError(
            f"-o {path}: unknown suffix {path.suffix!r}; there are {known}, and the name {', '.join(NAMED)}"
        )
    if path.is_dir():
        raise UsageError(f"-o {path}: a folder has this name: name another")
    refuse_read(path, reads)
    if path.suffix == ".parquet":
        check_parquet(path)


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
    reads = read_files(plugins.get(info.evaluator), info.request)
    reads += [file for source in info.sources for file in source.files]
    for path in paths:
        check_output(path, reads)
        own = is_unfinished(path.name) or path.name in _FINAL
        if own and path.exists() and path.parent.samefile(folder.path):
            raise UsageError(f"-o {path}: the run itself consists of this file: name another")


def _is_same(path: Path, given: str) -> bool:
    # Of a folder the files in it, too.
    return any(Path(each).exists() and path.samefile(each) for each in stands_for(given))


@stdout_to_stderr()
def write_output(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """One file asked for with -o, made from the run folder. Raises StorageError when it cannot be written."""
    check_outputs([path], folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _writer(path)(path, folder, evaluator, options)
    except OSError as error:
        raise StorageError.of(
            error, path, f"write it again: evalq report {folder.named()} -o {shlex.quote(str(path))}"
        ) from error


def _writer(path: Path) -> Writer:
    named = (write for name, write in NAMED.items() if path.name == name or path.name.endswith(f".{name}"))
    return next(named, FORMATS[path.suffix])
