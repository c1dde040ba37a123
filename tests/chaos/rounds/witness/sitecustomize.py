"""Counts what is computed, whoever computes it: each chunk that planagent evaluates is a line of a file.

Nothing of the product is asked for it: an inline run has no ledger, and a ledger counts what it was told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "evalq.evalcore.evaluators.planagent.evaluator"
_FILE = os.environ.get("ROUNDS_WITNESS", "")


def _told(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(evaluate)
    def call(self: Any, batch: Any, params: Any) -> Any:
        from evalq.evalcore.model.canonical import canonical_json, digest
        from evalq.evalcore.version import code_version

        asked = digest(canonical_json(params.model_dump(mode="json")))
        line = f"{code_version()} {asked} {batch.first_line} {len(batch.data)}\n"
        file = os.open(_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())  # one write: lines of many processes do not mix
        finally:
            os.close(file)
        return evaluate(self, batch, params)

    return call


class _Telling(Loader):
    """The real loader, and the wrapping behind it."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        module.PlanAgent.evaluate = _told(module.PlanAgent.evaluate)


class _Finder(MetaPathFinder):
    """Finds the evaluator where it is, and has it wrapped."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == MODULE else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Telling(spec.loader)
        return spec


if _FILE:
    sys.meta_path.insert(0, _Finder())
