"""What an evaluator brings for its contract tests: `examples/` beside it, its `sample`, or a sample module."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.params import merged
from evalq.evalcore.records.inputs import format_suffixes

__all__ = ["conformance_inputs", "own_evaluators"]

RECORDS = 120


def own_evaluators() -> list[str]:
    """Names of the evaluators that come with evalq; other packages run the suite in their own tests."""
    return [name for name, point in registry.entries().items() if point.dist is not None and point.dist.name == "evalq"]


def conformance_inputs(name: str, folder: Path, seed: int = 0) -> tuple[list[Path], dict[str, Any]]:
    """The inputs to try the evaluator ``name`` on, and the params that they need.

    Inputs are the files of its format in `examples/`, what its ``sample(folder, records, seed)`` writes, and what
    ``conformance_files(folder, seed)`` of a module `<package>.sample` returns; params are those of the sample's
    request, and what ``conformance_params()`` of that module returns.
    """
    evaluator: Evaluator[Any, Any] = registry.get(name)
    package = registry.entries()[name].module
    asked = evaluator.sample.write(folder, RECORDS, seed) if evaluator.sample else Request([], {}, {})
    request = evaluator.command.request(asked) if asked.inputs else asked
    more_files, more_params = _sampled(package, folder, seed)
    files = [*_examples(evaluator, package), *map(Path, request.inputs), *more_files]
    return files, merged(request.params, more_params)


def _examples(evaluator: Evaluator[Any, Any], package: str) -> list[Path]:
    file = importlib.import_module(package).__file__
    assert file is not None
    examples = (Path(file).parent / "examples").glob("*")
    return sorted(path for path in examples if path.name.endswith(format_suffixes(evaluator.records.format)))


def _sampled(package: str, folder: Path, seed: int) -> tuple[list[Path], dict[str, Any]]:
    if importlib.util.find_spec(f"{package}.sample") is None:
        return [], {}
    sample = importlib.import_module(f"{package}.sample")
    files = list(sample.conformance_files(folder, seed)) if hasattr(sample, "conformance_files") else []
    return files, sample.conformance_params() if hasattr(sample, "conformance_params") else {}
