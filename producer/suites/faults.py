"""Where a suite file is wrong: its line, the key path, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import as_json, explained, line_of
from evalq.evalcore.errors import ConfigError

__all__ = ["Key", "beside", "checked", "place_of", "wrong"]

M = TypeVar("M", bound=Params)
Key = tuple[str | int, ...]
"""The keys that lead to a place, from the top of the file."""


def checked(model: type[M], data: Mapping[str, Any], path: str | Path, key: Key = ()) -> M:
    """What stands under ``key``. Raises ConfigError with a line for each that is wrong."""
    try:
        return model.model_validate_json(as_json(data), strict=True)
    except ValidationError as error:
        raise wrong(path, [((*key, *where), reason) for where, reason in explained(error, model)]) from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place_of(path, key)}: not plain JSON data: {error}") from None


def wrong(path: str | Path, faults: Sequence[tuple[Key, str]]) -> ConfigError:
    """The error that says each of ``faults``, (where, why)."""
    return ConfigError("\n  ".join(f"{place_of(path, key)}: {reason}" for key, reason in faults))


def place_of(path: str | Path, key: Key) -> str:
    """File, line and key path."""
    line = line_of(path, key)
    at = f"{path}:{line}" if line else str(path)
    return f"{at}: {'.'.join(map(str, key))}" if key else at


def beside(base: Path, name: str) -> str:
    """A path as it is seen from the suite file; "-" stays what it is."""
    return name if name == "-" else os.path.normpath(base / name)
