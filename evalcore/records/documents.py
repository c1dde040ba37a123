"""Documents that people write in YAML or JSON: one reader for each, faults with their lines, and the lines of keys.

A name that ends in .json is read as JSON (RFC 8259), all others as YAML 1.2's core schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import yaml

from evalq.evalcore.naming import shorten
from evalq.evalcore.records import core_yaml

__all__ = ["DocumentFault", "KeyLines", "read_document"]

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{},]|\n|[^\s\[\]{},:"]+')
_MEMBER = re.compile(r"[ \t\r\n]*:")


class DocumentFault(ValueError):
    """A document cannot be read: ``line`` (1-based, None where it is not known) and ``reason`` say where and why."""

    def __init__(self, line: int | None, reason: str) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason)
        self.line, self.reason = line, reason


def read_document(text: str, name: str) -> Any:
    """The value in ``text``, the content of the file ``name``; no key of an object twice.

    Texts may have half of a surrogate pair, which escapes can write: what cannot keep it refuses it.

    Raises DocumentFault.
    """
    try:
        return _read_json(text) if _is_json(name) else core_yaml.load(text)
    except json.JSONDecodeError as error:
        raise DocumentFault(error.lineno, f"not JSON: {error.msg}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        raise DocumentFault(line, f"not YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise DocumentFault(None, "nested too deeply") from None
    except DocumentFault:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise DocumentFault(None, f"holds a value that cannot be read: {error}") from None


class KeyLines:
    """On which lines the keys of a document stand; the document is looked through once.

    Raises DocumentFault where it cannot be read.
    """

    def __init__(self, text: str, name: str) -> None:
        self._root: yaml.Node | None = None
        self._places: dict[tuple[str | int, ...], int] = {}
        if _is_json(name):
            self._places = dict(_places(text))
            return
        try:
            self._root = core_yaml.compose(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            raise DocumentFault(None, str(error)) from None

    def line(self, key: Sequence[str | int]) -> int:
        """The line (1-based) on which ``key`` stands, from the top; of as much of it as is there."""
        if self._root is not None:
            return core_yaml.line_in(self._root, key)
        # From the longest part down.
        parts = (self._places.get(tuple(key[:end])) for end in range(len(key), 0, -1))
        return next(filter(None, parts), 1)


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def _read_json(text: str) -> Any:
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            repeated.append(next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at])))
        return made

    value = json.loads(text, object_pairs_hook=unique, parse_constant=_no_constant)
    if repeated:
        seen = set()
        for path, line in _places(text):
            if path in seen:
                raise DocumentFault(line, f"not JSON: the key {shorten(str(path[-1]))!r} occurs twice")
            seen.add(path)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON: write null, or a number")


def _places(text: str) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """(keys from the top, line) of every member and item in ``text``, which is JSON."""
    line, begins = 1, False
    path: list[Any] = []
    inside: list[str] = []
    for match in _TOKEN.finditer(text):
        mark = match[0]
        if mark == "\n":
            line += 1
            continue
        if begins and inside[-1] == "[" and mark != "]":
            yield tuple(path), line
            begins = False
        if mark in "[{":
            inside.append(mark)
            path.append(0 if mark == "[" else "")
            begins = True
        elif mark in "]}":
            inside.pop()
            path.pop()
            begins = False
        elif mark == ",":
            if inside[-1] == "[":
                path[-1] += 1
            begins = True
        elif inside and inside[-1] == "{" and begins and _MEMBER.match(text, match.end()):
            path[-1] = json.loads(mark)
            yield tuple(path), line
            begins = False
