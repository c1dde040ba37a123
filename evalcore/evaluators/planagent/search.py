"""Where a value that a check missed stands instead: a generic walk over an answer's items."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from evalq.evalcore.evaluators.planagent.answer import Answer, plain_text, shortened
from evalq.evalcore.evaluators.planagent.checks import Check, without_space

__all__ = ["MAX_PATH", "PLAIN", "paths_of_missed"]

MAX_STEPS = 12
"""Containers within containers that are walked, from the item on."""
MAX_VALUES = 5000
"""Values of one answer that are looked at, about."""
MAX_PATH = 160
"""Characters of a key path that are kept."""

# What no writer of JSON escapes, so that a value of these stands in the JSON's text as it is.
PLAIN = re.compile(r"[\w .-]+", re.ASCII)
_SWITCH = "multiSelectAllowYn"


def paths_of_missed(raw: str, answer: Answer, missed: Sequence[Check]) -> Iterator[tuple[str, str]]:
    """(kind, key path) for every missed check and every distinct path its value stands at.

    A path runs from ``uiValue`` ("value.nodeDataSet.dataKey"; list positions are "[*]"), elsewhere in an item from the
    answer's top ("dataUIList[*].uiDescription"). A keyword stands in any text that holds it, a switch wherever its own
    name has its value, another text where it is the whole value. ``raw`` is the JSON the answer was read from.
    """
    walk = _Walk([check for check in missed if _may_stand_in(raw, answer, check)])
    if walk.idle:
        return
    for item in answer.items:
        walk.item(item)
    for kind, path in sorted(walk.found):
        yield kind, shortened(plain_text(path), MAX_PATH)


def _may_stand_in(raw: str, answer: Answer, check: Check) -> bool:
    """Whether a walk is worth its time.

    A plain value that does not stand in quotes in the JSON's text is no value in it. A switch that stands where it
    belongs, with the other value, is not misplaced.
    """
    want = check.want
    if check.kind == _SWITCH:
        # True and false stand all over a JSON: only the switch's own name tells one that is misplaced.
        return not any(_SWITCH in ui for ui in answer.values)
    if check.kind == "message" or f'"{want}"' in raw:
        return True
    return not PLAIN.fullmatch(want)


class _Walk:
    """Collects (kind, path) in ``found``; one walk serves all missed checks of a row."""

    def __init__(self, missed: Sequence[Check]) -> None:
        self.found: set[tuple[str, str]] = set()
        self._texts: dict[str, list[str]] = {}
        self._keywords: list[str] = []
        self._switches: list[bool] = []
        self._left = MAX_VALUES
        for check in missed:
            if check.kind == "message":
                self._keywords.append(without_space(check.want))
            elif check.kind == _SWITCH:
                self._switches.append(check.want == "true")
            else:
                self._texts.setdefault(check.want, []).append(check.kind)

    @property
    def idle(self) -> bool:
        """Whether nothing is sought."""
        return not (self._texts or self._keywords or self._switches)

    def item(self, item: Any) -> None:
        """Walk one element of dataUIList."""
        if type(item) is dict:
            for key, value in item.items():
                self._any(value, "" if key == "uiValue" else f"dataUIList[*].{key}", 1)
        else:
            self._any(item, "dataUIList[*]", 1)

    def _any(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if kind is dict:
            self._object(value, path, depth)
        elif kind is list:
            if depth <= MAX_STEPS and self._left > 0:
                self._left -= len(value)
                inside = f"{path}[*]"
                for element in value:
                    self._any(element, inside, depth + 1)
        elif kind is str:
            self._text(value, path or "uiValue")

    def _object(self, node: dict[str, Any], path: str, depth: int) -> None:
        """Look at an object's values; those of the commonest types without a call of their own."""
        if depth > MAX_STEPS or self._left <= 0:
            return
        self._left -= len(node)
        texts, keywords = self._texts, self._keywords
        prefix = f"{path}." if path else ""
        for key, value in node.items():
            kind = type(value)
            if kind is str:
                if keywords or value in texts:
                    self._text(value, prefix + key)
            elif kind is dict or kind is list:
                self._any(value, prefix + key, depth + 1)
            elif kind is bool and key == _SWITCH and value in self._switches:
                self.found.add((_SWITCH, prefix + key))

    def _text(self, value: str, path: str) -> None:
        for kind in self._texts.get(value, ()):
            self.found.add((kind, path))
        if self._keywords:
            plain = without_space(value)
            if any(keyword in plain for keyword in self._keywords):
                self.found.add(("message", path))
