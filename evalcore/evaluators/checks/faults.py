"""What is wrong in cases files, each fault with its place: all of it is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.naming import join
from evalq.evalcore.records.documents import KeyLines

__all__ = ["Faults", "Place"]

_SHOWN_FAULTS = 20


class Place(NamedTuple):
    """Where something is written: a file, the keys that lead there from its top, or its line where that is known."""

    file: str
    keys: tuple[str | int, ...] = ()
    line: int | None = None

    def at(self, *keys: str | int) -> Place:
        """The place below this one."""
        return Place(self.file, (*self.keys, *keys), self.line)

    @property
    def path(self) -> str:
        """The keys as a path."""
        path = ""
        for key in self.keys:
            path = join(path, key)
        return path


class Faults:
    """Collects what is wrong, so that a user can correct all of it at once."""

    def __init__(self) -> None:
        self.found: list[tuple[Place, str]] = []
        self._seen: set[tuple[Place, str]] = set()

    def add(self, place: Place, reason: str) -> None:
        """Note that something is wrong at ``place``."""
        # A template's fault is met again with every case.
        if (place, reason) not in self._seen:
            self._seen.add((place, reason))
            self.found.append((place, reason))

    def unknown(self, data: Mapping[Any, Any], known: tuple[str, ...], place: Place) -> None:
        """Note keys of ``data`` that are none of ``known``."""
        for key in data:
            if key not in known:
                self.add(place.at(str(key)), f"unknown key (known here: {', '.join(known)})")

    def raise_any(self, what: str = "the cases") -> None:
        """Raise ConfigError that lists the first faults of ``what`` by file, line and key path, where there is any."""
        if not self.found:
            return
        shown = self.found[:_SHOWN_FAULTS]
        lines = _lines(shown)
        told = []
        for place, reason in shown:
            line = place.line or lines.get((place.file, place.keys))
            where = f"{place.file}:{line}" if line else place.file
            told.append(f"{where}: {place.path}: {reason}" if place.keys else f"{where}: {reason}")
        if len(self.found) > len(shown):
            told.append(f"and {len(self.found) - len(shown)} more")
        raise ConfigError("\n  ".join([f"{what} are not valid", *told]))


def _lines(faults: list[tuple[Place, str]]) -> dict[tuple[str, tuple[str | int, ...]], int]:
    """The lines of those faults that have none yet, each file composed once."""
    found = {}
    for file in {place.file for place, _ in faults if place.line is None}:
        keys = [place.keys for place, _ in faults if place.file == file]
        try:
            text = Path(file).read_text(encoding="utf-8-sig")
            lines = KeyLines(text, file)
            found.update({(file, key): lines.line(key) for key in keys})
        # A line is a help: where the file is gone or another by now, its fault is told by the path of keys alone.
        except (OSError, ValueError):
            continue
    return found
