"""Made-up input of an evaluator, by its own means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request

KEY = "0f" * 32
"""The key of a made-up run's chunks."""


def sampled(evaluator: str | Evaluator[Any, Any], folder: Path, records: int, seed: int = 1) -> Request:
    """The request that evaluates about ``records`` made-up records, which are then in ``folder``."""
    chosen = plugins.get(evaluator) if isinstance(evaluator, str) else evaluator
    assert chosen.sample is not None, f"{chosen.name} makes no sample"
    return chosen.sample.write(folder, records, seed)
