"""Documents as YAML: by libyaml where that gives the same bytes as PyYAML's own Python, at twice the speed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from evalq.evalcore.records.core_yaml import Dumper, FastDumper

__all__ = ["yaml_text"]

# Libyaml escapes what is past U+FFFF and breaks lines elsewhere in what it has to escape; line feeds are folded anew.
_ALIKE = re.compile("[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")
_LONGEST_KEY = 100
"""Bytes of a key; with more of them libyaml counts other keys as long ones than PyYAML, which goes by characters."""
_AT_ONCE = 5_000
"""Values that are written together: for each PyYAML holds hundreds of bytes until all of them are written."""
_SIMPLE_KEY = re.compile("[A-Za-z][A-Za-z0-9_]{0,60}")


def yaml_text(document: Any, *, sort_keys: bool = False) -> str:
    """``document``, plain data, in YAML's block style, as readers of YAML 1.1 and 1.2 read it alike.

    The bytes are those of ``yaml.dump`` with `core_yaml.Dumper`, in little more memory.
    """
    dumper = FastDumper if FastDumper and isinstance(document, dict) and _written_alike(document) else Dumper

    def dump(part: Any) -> str:
        text: str = yaml.dump(part, Dumper=dumper, allow_unicode=True, sort_keys=sort_keys)
        return text

    if not isinstance(document, dict) or _has_shared(document):  # what stands in it twice is written once, with a name
        return dump(document)
    return "".join(_Pieces(dump, sort_keys).of(document, 0)) or dump(document)


class _Pieces:
    """A document in pieces, each as it stands in the whole: how a value is written depends on how deep it is alone."""

    def __init__(self, dump: Callable[[Any], str], sort: bool) -> None:
        self._dump = dump
        self._sort = sort

    def of(self, part: dict[str, Any] | list[Any], depth: int) -> Iterator[str]:
        """The lines of all that stands in ``part``, which stands in so many others."""
        group: list[Any] = []
        room = _AT_ONCE
        for item in self._items(part):
            size = _size(item, _AT_ONCE)
            apart = size >= _AT_ONCE and isinstance(part, dict) and _may_be_divided(*item)
            if group and (apart or size > room):
                yield self._written(type(part)(group), depth)
                group, room = [], _AT_ONCE
            if apart:
                key, value = item
                yield self._written({key: {"k": 0}}, depth).rpartition("  " * (depth + 1) + "k: 0\n")[0]
                yield from self.of(value, depth + 1)
            else:
                group.append(item)
                room -= size
        if group:
            yield self._written(type(part)(group), depth)

    def _items(self, part: dict[str, Any] | list[Any]) -> list[Any]:
        if isinstance(part, list):
            return part
        items = list(part.items())
        if self._sort:
            with contextlib.suppress(TypeError):  # as PyYAML: keys of several types stay as they are
                items.sort()
        return items

    def _written(self, part: Any, depth: int) -> str:
        """``part`` as deep, without the lines of what it stands in."""
        for _ in range(depth):
            part = {"k": part}
        return self._dump(part)[sum(len("k:\n") + 2 * above for above in range(depth)) :]


def _may_be_divided(key: Any, value: Any) -> bool:
    """Whether the key has a line of its own, and the value begins in the next."""
    return (
        isinstance(key, str)
        and _SIMPLE_KEY.fullmatch(key) is not None
        and isinstance(value, dict | list)
        and len(value) > 0
    )


def _size(value: Any, most: int) -> int:
    """How many values there are in ``value``, itself included; not counted beyond ``most``."""
    waiting, count = [value], 0
    while waiting and count < most:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return count


def _has_shared(document: Any) -> bool:
    """Whether an object with others in it stands at two places."""
    waiting, seen = [document], set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list | tuple) and part != ():
            if id(part) in seen:
                return True
            seen.add(id(part))
            waiting += part.values() if isinstance(part, dict) else part
    return False


def _written_alike(document: Any) -> bool:
    """Whether both write it in the same bytes."""
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            if not _ALIKE.fullmatch(part):
                return False
        elif isinstance(part, dict):
            if not all(type(key) is str and 0 < len(key.encode()) < _LONGEST_KEY for key in part):
                return False
            waiting += (*part, *part.values())
        elif isinstance(part, list | tuple):
            waiting += part
    return True
