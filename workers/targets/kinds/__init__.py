"""The kinds of targets, a module each that is called as ``kind`` is in a targets file, with its model as ``TARGET``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from evalq.workers.targets.target import Target

__all__ = ["MODELS"]


def _models() -> dict[str, type[Target]]:
    found = sorted(path.stem for folder in __path__ for path in Path(folder).glob("*.py"))
    return {name: import_module(f"{__name__}.{name}").TARGET for name in found if not name.startswith("_")}


MODELS = _models()
"""By the name that ``kind`` gives."""
