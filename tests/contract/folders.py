"""What there is for an evaluator's contract tests: `examples/` beside it, its sample, and hard files of its tests."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.records.inputs import format_suffixes

RECORDS = 120


def conformance_inputs(
    name: str, folder: Path, seed: int = 0, records: int = RECORDS
) -> tuple[list[Path], dict[str, Any]]:
    """The inputs to try the evaluator ``name`` on, and the params that they need; its sample has so many ``records``.

    Inputs are the files of its format in `examples/`, what its sample writes, and what ``hard_files(folder, seed)`` of
    a module `tests.unit.<name>.hard` returns; params are those of the sample's request.
    """
    evaluator: Evaluator[Any, Any] = plugins.get(name)
    package = plugins.entries()[name].module
    asked = evaluator.sample.write(folder, records, seed) if evaluator.sample else Request([], {}, {})
    request = evaluator.command.request(asked) if asked.inputs else asked
    files = [*_examples(evaluator, package), *map(Path, request.inputs), *_hard(name, folder, seed)]
    return files, request.params


def _examples(evaluator: Evaluator[Any, Any], package: str) -> list[Path]:
    file = importlib.import_module(package).__file__
    assert file is not None
    examples = (Path(file).parent / "examples").glob("*")
    return sorted(path for path in examples if path.name.endswith(format_suffixes(evaluator.records.format)))


def _hard(name: str, folder: Path, seed: int) -> list[Path]:
    module = f"tests.unit.{name}.hard"
    if importlib.util.find_spec(f"tests.unit.{name}") is None or importlib.util.find_spec(module) is None:
        return []
    found: list[Path] = importlib.import_module(module).hard_files(folder, seed)
    return found
