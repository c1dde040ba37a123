"""The files of -o: the format of each ending, and checks before anything is computed."""

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
"""Files of a finished run that -o must not overwrite; its reports and records would stay the same."""


Writer = Callable[[Path, RunFolder, Evaluator[Any, Any], Mapping[str, Any]], None]
"""A function that writes a file from a finished run's folder, with the evaluator's options."""


def _text(fmt: str) -> Writer:
    def write(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
        write_atomic(path, render(fmt, evaluator, folder.report(), options).encode())

    return write


def _html(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    write_page(path, evaluator, folder.report(), folder.own(RECORDS), folder=folder)


def _xml(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    # Imported here, since few runs count cases as comparisons do; likewise below.
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
"""{suffix: writer}."""
NAMED: dict[str, Writer] = {"every-eval-ever.json": _every_eval_ever}
"""Formats that the whole name selects, such as week.every-eval-ever.json."""


def check_output(path: Path, reads: Iterable[str] = ()) -> None:
    """Raise UsageError for an unknown suffix or a missing package, before anything is computed.

    Also for a file that the run ``reads``, since recorded answers may have cost money.
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
    """Raise UsageError if ``path`` is one of the files that a command ``reads``."""
    if path.exists() and any(_is_same(path, given) for given in reads):
        raise UsageError(f"-o {path}: the command reads this file: name another")


def read_files(evaluator: Evaluator[Any, Any], request: Request, *others: str | Path | None) -> list[str]:
    """The paths and patterns that a run reads by ``request``, and ``others``."""
    named = [request.options.get(option.name) for option in evaluator.command.options if option.kind == "path"]
    listed = [each for value in named for each in (value if isinstance(value, (list, tuple)) else [value])]
    return [str(each) for each in (*request.inputs, *listed, *others) if each]


def check_outputs(paths: Iterable[Path], folder: RunFolder) -> None:
    """Check outputs of the run in ``folder``, which must not overwrite files that it reads or consists of."""
    info = folder.info()
    reads = read_files(plugins.get(info.evaluator), info.request)
    reads += [file for source in info.sources for file in source.files]
    for path in paths:
        check_output(path, reads)
        own = is_unfinished(path.name) or path.name in _FINAL
        if own and path.exists() and path.parent.samefile(folder.path):
            raise UsageError(f"-o {path}: the run itself consists of this file: name another")


def _is_same(path: Path, given: str) -> bool:
    # A folder stands for the files in it.
    return any(Path(each).exists() and path.samefile(each) for each in stands_for(given))


@stdout_to_stderr()
def write_output(path: Path, folder: RunFolder, evaluator: Evaluator[Any, Any], options: Mapping[str, Any]) -> None:
    """Write one file of -o from the run folder. Raises StorageError."""
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
