"""What a report's numbers leave out, or take in a looser form: counted, with the reason and with examples.

Every evaluator and every importer uses these two types, so that a report, a gate and an import name the same things in
the same form. `LeftOut` adds up over the chunks of one input, in `Tally.left_out`; an `Omission` is one entry of
``left_out`` in report.json.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from evalq.evalcore.model.merging import Merging

__all__ = ["EXAMPLES", "Example", "LeftOut", "Omission", "grouped", "omissions", "omissions_in"]

EXAMPLES = 20
"""How many examples of one omission are kept."""
_MAX_TEXT = 200
"""Characters of an example."""


class Example(msgspec.Struct, frozen=True):
    """One thing that was left out: ``where`` is its record ("plan.csv:12") or its place, ``text`` what stands there."""

    where: str
    text: str


class Omission(msgspec.Struct, frozen=True, omit_defaults=True):
    """``count`` things of one kind that a number leaves out.

    ``what`` names the kind in the singular ("condition"), ``why`` gives the reason. ``instead`` says what counts in its
    place where something looser does; it is empty where nothing does. ``examples`` are the first ones, no text twice.
    """

    what: str
    why: str
    count: int
    instead: str = ""
    examples: list[Example] = []

    def sentence(self, shown: int = 3) -> str:
        """The omission as one line of text, with its first ``shown`` examples."""
        fate = f"replaced by {self.instead}" if self.instead else "left out"
        listed = "; ".join(f"{each.where}: {each.text}" for each in self.examples[:shown])
        return f"{fate}: {self.count:,} x {self.what}, {self.why}" + (f" ({listed})" if listed else "")


class _Part(Merging, array_like=True):
    """One kind: how many, and the EXAMPLES first (line, text) pairs, of which each text stands at its first line."""

    count: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def merge(self, later: _Part) -> None:
        self.count += later.count
        # Equal texts are one example. A text among the first of all input is among the first of its own part, and its
        # lowest line is there, so that any order of merging gives the same list.
        if len(self.first) < EXAMPLES or later.first < self.first[-1:]:
            lowest: dict[str, int] = {}
            for line, text in heapq.merge(self.first, later.first):
                lowest.setdefault(text, line)
            self.first = [(line, text) for text, line in lowest.items()][:EXAMPLES]


class LeftOut(Merging):
    """What the records of one input leave out, by kind; the same however the input was cut.

    ``parts`` has a key for each (what, why, instead). These are sentences of evalq's code, so that there are few of
    them; what the input holds goes into the examples.
    """

    parts: dict[str, _Part] = msgspec.field(default_factory=dict)

    def add(self, what: str, why: str, line: int, text: str, *, count: int = 1, instead: str = "") -> None:
        """Count ``count`` things, of which ``text`` is an example on ``line`` (1-based; 0 for the input as a whole).

        ``text`` is made one line and cut to 200 characters.
        """
        self.add_all(what, why, count, [(line, text)], instead=instead)

    def add_all(
        self, what: str, why: str, count: int, examples: Iterable[tuple[int, str]], *, instead: str = ""
    ) -> None:
        """Count ``count`` things at once, with ``examples`` of (line, text): of each text at least its first line."""
        if count:
            first: dict[str, int] = {}
            for line, text in sorted((line, _short(text)) for line, text in examples):
                first.setdefault(text, line)
            part = _Part(count, [(line, text) for text, line in first.items()][:EXAMPLES])
            self.parts.setdefault("\n".join((what, why, instead)), _Part()).merge(part)

    def merge(self, later: LeftOut) -> None:
        """Take in what another piece of the input leaves out."""
        for key, part in later.parts.items():
            self.parts.setdefault(key, _Part()).merge(part)


def omissions(inputs: Sequence[tuple[LeftOut, Callable[[int], str]]]) -> list[Omission]:
    """The omissions of all inputs, each given with a function from a line to the name of its record.

    Kinds stand in the order of their texts, examples in that of the inputs.
    """
    return grouped(
        (*key.split("\n"), part.count, [Example(where(line), text) for line, text in part.first])
        for left_out, where in inputs
        for key, part in left_out.parts.items()
    )


def grouped(found: Iterable[tuple[Any, ...]]) -> list[Omission]:
    """Omissions from (what, why, instead, count, examples), those of one kind added up: for importers, too."""
    counts: dict[tuple[str, str, str], int] = {}
    examples: dict[tuple[str, str, str], dict[str, Example]] = {}
    for what, why, instead, count, some in found:
        key = (what, why, instead)
        counts[key] = counts.get(key, 0) + count
        known = examples.setdefault(key, {})
        for each in some:
            if len(known) < EXAMPLES:
                known.setdefault(each.text, each)
    return [
        Omission(what, why, count, instead, list(examples[what, why, instead].values()))
        for (what, why, instead), count in sorted(counts.items())
    ]


def omissions_in(report: Any) -> list[Omission]:
    """Those that a report (report.json's content) has. Raises msgspec.ValidationError where they are malformed."""
    return msgspec.convert(report.get("left_out", []), list[Omission])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"
