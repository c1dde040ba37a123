"""Where a suite file is wrong: its line, the key path, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import as_json, explained, line_of
from evalq.evalcore.errors import ConfigError

__all__ = ["At", "Key", "beside", "checked", "place_of", "wrong"]

M = TypeVar("M", bound=Params)
Key = tuple[str | int, ...]
"""The keys that lead to a place, from the top of the file."""


class At(NamedTuple):
    """Where something stands in a suite file; ``moved``: {a key of it: where that stands instead}, as in a matrix."""

    path: str | Path
    key: Key
    moved: Mapping[str, Key] = {}

    def under(self, *keys: str | int) -> Key:
        """Where these of its keys stand."""
        moved = self.moved.get(str(keys[0])) if keys else None
        return (*self.key, *keys) if moved is None else (*moved, *keys[1:])

    def checked(self, model: type[M], data: Mapping[str, Any]) -> M:
        """What stands there. Raises ConfigError with a line for each that is wrong."""
        try:
            return model.model_validate_json(as_json(data), strict=True)
        except ValidationError as error:
            faults = [(self.under(*where), reason) for where, reason in explained(error, model)]
            raise wrong(self.path, faults) from None
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{place_of(self.path, self.key)}: not plain JSON data: {error}") from None

    def wrong(self, keys: Key, reason: str) -> ConfigError:
        """The error that says what is wrong under ``keys``."""
        return wrong(self.path, [(self.under(*keys), reason)])


def checked(model: type[M], data: Mapping[str, Any], path: str | Path, key: Key = ()) -> M:
    """What stands under ``key``. Raises ConfigError with a line for each that is wrong."""
    return At(path, key).checked(model, data)


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
