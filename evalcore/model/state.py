"""States: what records add up to, whatever pieces they came in: tallies, omissions, bounded tables, seen repeats."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec


class Merging(msgspec.Struct):
    """What records add up to, whatever pieces they came in. Every field has a default, and the defaults are nothing.

    Four verbs, the same for all: `zero` is what no records add up to, ``add`` takes in one of what it counts, `merge`
    takes in what the records that follow add up to, and `to_wire` with `from_wire` carries it from process to process.
    ``add`` is left to each, since what they count differs; where adding many at once is cheaper, ``of`` gives what
    they add up to.

    The wire form is the fields as JSON, typed and checked on the way in, so fields are of types that msgspec can name:
    no bare ``object``. Floats that are summed are held as ExactSum, because a naive sum depends on the order.
    """

    @classmethod
    def zero(cls) -> Self:
        """What no records add up to."""
        return cls()

    def merge(self, later: Self) -> None:
        """Take in what the records that follow right behind these add up to, in place.

        Must be associative to the last bit, and ``zero()`` must change nothing on either side. ``later`` is
        not used again by the caller. A state of a million records is merged from small ones many times:
        the cost must depend on the size of ``later``, not on what was gathered before.
        """
        raise NotImplementedError(f"{type(self).__name__} has no merge()")

    def to_wire(self) -> bytes:
        """Canonical JSON of the fields: equal ones are equal bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @classmethod
    def from_wire(cls, data: bytes) -> Self:
        """What is in ``data``. Raises msgspec.ValidationError when it is none of this type."""
        return msgspec.json.decode(data, type=cls)


def add_counts(into: dict[str, int], more: Mapping[str, int]) -> None:
    """Add ``more`` counts to those of the same names."""
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


# Omissions: what a report's numbers leave out, or take in a looser form, with the reason and with examples. `LeftOut`
# adds up over the chunks of one input, in `Tally.left_out`; an `Omission` is one entry of ``left_out`` in report.json.
# Every evaluator and every importer uses these two, so that a report, a gate and an import name things alike.

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


class _OmittedKind(Merging, array_like=True):
    """One kind: how many, and the EXAMPLES first (line, text) pairs, of which each text stands at its first line."""

    count: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def merge(self, later: _OmittedKind) -> None:
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

    parts: dict[str, _OmittedKind] = msgspec.field(default_factory=dict)

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
            part = _OmittedKind(count, [(line, text) for text, line in first.items()][:EXAMPLES])
            self.parts.setdefault("\n".join((what, why, instead)), _OmittedKind()).merge(part)

    def merge(self, later: LeftOut) -> None:
        """Take in what another piece of the input leaves out."""
        for key, part in later.parts.items():
            self.parts.setdefault(key, _OmittedKind()).merge(part)


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


LISTED = 100
"""How many faults of one kind are kept word for word; beyond that they are counted."""


class Faults(Merging):
    """The first LISTED (line, reason) pairs, by line, and how many there were in all."""

    total: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Note one fault."""
        self.merge(Faults(1, [(line, reason)]))

    def merge(self, later: Faults) -> None:
        """Take in ``later``; the lowest lines are kept, so the order of merging cannot matter."""
        if not later.total:
            return
        self.total += later.total
        # A full list changes only by lower lines, so most merges of an input full of faults add numbers.
        if len(self.first) < LISTED or later.first < self.first[-1:]:
            self.first = list(heapq.merge(self.first, later.first))[:LISTED]


class Tally(Merging):
    """Counts of records by what became of them, and their faults.

    ``scored`` records have a result, ``unscored`` ones cannot have one by the rules, ``errors`` are broken
    records (never a score), ``dead`` ones killed their worker. ``fatal`` faults fail the run (exit 2),
    ``listed`` ones are shown in its report. ``left_out`` is what its numbers leave out of their denominators.
    """

    scored: int = 0
    unscored: int = 0
    errors: int = 0
    dead: int = 0
    fatal: Faults = msgspec.field(default_factory=Faults)
    listed: Faults = msgspec.field(default_factory=Faults)
    left_out: LeftOut = msgspec.field(default_factory=LeftOut)

    @property
    def total(self) -> int:
        """Records of any kind."""
        return self.scored + self.unscored + self.errors + self.dead

    def merge(self, later: Tally) -> None:
        """Take in the tally of another piece of the same input."""
        self.scored += later.scored
        self.unscored += later.unscored
        self.errors += later.errors
        self.dead += later.dead
        self.fatal.merge(later.fatal)
        self.listed.merge(later.listed)
        self.left_out.merge(later.left_out)


KEPT = 2000
"""How many texts a table keeps; the counts of any further ones are known only as a sum."""


class Table(Merging, array_like=True):
    """A vector of counts for each of many texts, and the sum over all texts.

    When there are more than KEPT texts, those of the lowest checksums are kept, wherever they stood: such a text is
    among the lowest in every part of the input that has it, so it was never dropped and its counts are complete.
    """

    counts: dict[str, list[int]] = msgspec.field(default_factory=dict)
    total: list[int] = msgspec.field(default_factory=list)

    def add(self, text: str, counts: list[int]) -> None:
        """Add ``counts`` (of the same length in all calls) to those of ``text``."""
        self._add(text, counts)
        self._add_total(counts)

    def merge(self, later: Table) -> None:
        """Take in another table."""
        for text, counts in later.counts.items():
            self._add(text, counts)
        self._add_total(later.total)
        if len(self.counts) > 2 * KEPT:
            self.trim()

    def trim(self) -> None:
        """Drop the texts beyond KEPT. Between trims there may be more, so that merging stays cheap."""
        if len(self.counts) > KEPT:
            lowest = sorted(self.counts, key=lambda text: (zlib.crc32(text.encode()), text))[:KEPT]
            self.counts = {text: self.counts[text] for text in lowest}

    def top(self, limit: int, by: int = 0) -> list[tuple[str, list[int]]]:
        """The texts with the most of count number ``by``, none of those without any; ties in alphabetical order."""
        self.trim()
        present = [item for item in self.counts.items() if item[1][by]]
        return sorted(present, key=lambda item: (-item[1][by], item[0]))[:limit]

    def sum(self, by: int = 0) -> int:
        """Count number ``by`` over all texts, kept or not."""
        return self.total[by] if self.total else 0

    def _add(self, text: str, counts: list[int]) -> None:
        old = self.counts.get(text)
        if old is None:
            self.counts[text] = counts.copy()
        else:
            _increase(old, counts)

    def _add_total(self, counts: list[int]) -> None:
        if not self.total:
            self.total = counts.copy()
        elif counts:
            _increase(self.total, counts)


def _increase(counts: list[int], more: list[int]) -> None:
    for at, count in enumerate(more):
        counts[at] += count


# Which repeats of a case were seen: a mapping from blocks of sixty-four to their bits. With lists of repeats, states
# would be several times as long.

_BITS = 64


def mark_seen(seen: dict[int, int], repeat: int) -> bool:
    """Mark a repeat as seen; true when it was already."""
    block, bit = repeat // _BITS, 1 << repeat % _BITS
    before = seen.get(block, 0)
    seen[block] = before | bit
    return bool(before & bit)


def has_seen(seen: dict[int, int], repeat: int) -> bool:
    """Whether a repeat was seen."""
    return bool(seen.get(repeat // _BITS, 0) >> repeat % _BITS & 1)


def overlap(one: dict[int, int], other: dict[int, int]) -> bool:
    """Whether some repeat is in both."""
    return any(one.get(block, 0) & bits for block, bits in other.items())


def merge_seen(into: dict[int, int], later: dict[int, int]) -> None:
    """Take in the repeats of ``later``."""
    for block, bits in later.items():
        into[block] = into.get(block, 0) | bits
