"""The cases of a run, listed before anything is evaluated."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Evaluator, Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.records.inputs import discover, format_suffixes
from evalq.evalcore.records.opened import batches, opened
from evalq.evalcore.records.spool import spool

__all__ = ["case_names"]


def case_names(evaluator: Evaluator[Any, Any], asked: Request, limit: int | None = None) -> list[str] | None:
    """The cases that the run asked for is about, sorted; None where its evaluator lists none, or its input comes once.

    ``asked`` is a request as the evaluator's command completes it. All inputs are read, up to ``limit`` records. Raises
    InputError, ConfigError, OSError.
    """
    named = evaluator.measures.named if evaluator.measures else None
    if named is None or "-" in asked.inputs:
        return None
    params, found, left = validate(evaluator.Params, asked.params, "params"), set[str](), limit
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        for given in discover(asked.inputs, format_suffixes(evaluator.records.format), evaluator.gathering.endings):
            source = spool(given, Path(scratch), evaluator.gathering.line)
            with opened(source, evaluator.records.format, evaluator.records.columns, limit=left) as cutter:
                for batch in batches(cutter, source):
                    found.update(named(batch, params))
            left = None if left is None else left - cutter.records
    return sorted(found)
