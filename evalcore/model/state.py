"""States: sums over records that do not depend on chunks: tallies, omissions, bounded tables, seen repeats."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec


class Merging(msgspec.Struct):
    """A state: the sum over records, whatever chunks they come in. Every field has a default, which means no records.

    All states have four verbs. `zero` is the state of no records, ``add`` counts one thing, `merge` adds the state of
    the records that follow, and `to_wire` with `from_wire` carries a state from process to process. Each class defines
    its ``add``; if adding many at once is cheaper, ``of`` makes their state.

    The wire form is the fields as JSON, typed and checked on the way in, so fields have types that msgspec can name:
    no bare ``object``. Sums of floats are ExactSum, because a naive sum depends on the order.
    """

    @classmethod
    def zero(cls) -> Self:
        """The state of no records."""
        return cls()

    def merge(self, later: Self) -> None:
        """Add the state of the records that follow right after these, in place.

        Must be associative to the last bit, and ``zero()`` must change nothing on either side. The caller does not use
        ``later`` again. evalq merges a state of a million records from many small ones, so the cost must depend on the
        size of ``later``, not on that of ``self``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no merge()")

    def to_wire(self) -> bytes:
        """Canonical JSON of the fields: equal ones are equal bytes."""
        return msgspec.json.encode(self, order="deterministic")

    @classmethod
    def from_wire(cls, data: bytes) -> Self:
        """Decode a state. Raises msgspec.ValidationError if ``data`` is not of this type."""
        return msgspec.json.decode(data, type=cls)


def add_counts(into: dict[str, int], more: Mapping[str, int]) -> None:
    """Add ``more`` counts to those of the same names."""
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


# Omissions: things that a report's numbers leave out, or count in a looser form, with the reason and with examples.
# `LeftOut` adds up over the chunks of one input, in `Tally.left_out`; an `Omission` is one entry of ``left_out`` in
# report.json. All evaluators and importers use these two, so that a report, a gate and an import use the same words.

EXAMPLES = 20
"""The limit of examples of one omission."""
_MAX_TEXT = 200
"""The limit of characters in an example."""


class Example(msgspec.Struct, frozen=True):
    """One omitted thing: ``where`` is its record ("plan.csv:12") or location, ``text`` quotes it."""

    where: str
    text: str


class Omission(msgspec.Struct, frozen=True, omit_defaults=True):
    """``count`` things of one kind that a number leaves out.

    ``what`` names the kind in the singular ("condition"), ``why`` gives the reason. ``instead`` names the looser form
    that counts instead; it is empty if nothing does. ``examples`` are the first ones, no text twice.
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
    """The count of one kind, and its first EXAMPLES (line, text) pairs, each text with its first line."""

    count: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def merge(self, later: _OmittedKind) -> None:
        self.count += later.count
        # Equal texts are one example. A text among the first of the whole input is among the first of its part, with
        # its lowest line, so that any order of merging gives the same list.
        if len(self.first) < EXAMPLES or later.first < self.first[-1:]:
            lowest: dict[str, int] = {}
            for line, text in heapq.merge(self.first, later.first):
                lowest.setdefault(text, line)
            self.first = [(line, text) for text, line in lowest.items()][:EXAMPLES]


class LeftOut(Merging):
    """The omissions in the records of one input, by kind; they do not depend on how the input is cut.

    ``parts`` has a key for each (what, why, instead). These texts come from evalq's code, so there are few of them;
    texts of the input go into the examples.
    """

    parts: dict[str, _OmittedKind] = msgspec.field(default_factory=dict)

    def add(self, what: str, why: str, line: int, text: str, *, count: int = 1, instead: str = "") -> None:
        """Count ``count`` things, of which ``text`` is an example on ``line`` (1-based; 0 for the input as a whole).

        ``text`` becomes one line, cut to 200 characters.
        """
        self.add_all(what, why, count, [(line, text)], instead=instead)

    def add_all(
        self, what: str, why: str, count: int, examples: Iterable[tuple[int, str]], *, instead: str = ""
    ) -> None:
        """Count ``count`` things at once, with (line, text) ``examples``: each text with at least its first line."""
        if count:
            first: dict[str, int] = {}
            for line, text in sorted((line, _short(text)) for line, text in examples):
                first.setdefault(text, line)
            part = _OmittedKind(count, [(line, text) for text, line in first.items()][:EXAMPLES])
            self.parts.setdefault("\n".join((what, why, instead)), _OmittedKind()).merge(part)

    def merge(self, later: LeftOut) -> None:
        """Add the omissions of another piece of the input."""
        for key, part in later.parts.items():
            self.parts.setdefault(key, _OmittedKind()).merge(part)


def omissions(inputs: Sequence[tuple[LeftOut, Callable[[int], str]]]) -> list[Omission]:
    """The omissions of all inputs, each with a function from a line to the name of its record.

    Kinds are in the order of their texts, examples in the order of the inputs.
    """
    return grouped(
        (*key.split("\n"), part.count, [Example(where(line), text) for line, text in part.first])
        for left_out, where in inputs
        for key, part in left_out.parts.items()
    )


def grouped(rows: Iterable[tuple[Any, ...]]) -> list[Omission]:
    """One omission for each kind in rows of (what, why, instead, count, examples)."""
    counts: dict[tuple[str, str, str], int] = {}
    examples: dict[tuple[str, str, str], dict[str, Example]] = {}
    for what, why, instead, count, some in rows:
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
    """The omissions in a report (report.json's content). Raises msgspec.ValidationError if they are malformed."""
    return msgspec.convert(report.get("left_out", []), list[Omission])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"


LISTED = 100
"""The limit of faults of one kind to list; further ones are only counted."""


class Faults(Merging):
    """The first LISTED (line, reason) pairs, by line, and the total number of faults."""

    total: int = 0
    first: list[tuple[int, str]] = msgspec.field(default_factory=list)

    def add(self, line: int, reason: str) -> None:
        """Note one fault."""
        self.merge(Faults(1, [(line, reason)]))

    def merge(self, later: Faults) -> None:
        """Add ``later``. The lowest lines stay, so the order of merging does not matter."""
        if not later.total:
            return
        self.total += later.total
        # Only lower lines change a full list, so most merges of an input full of faults only add numbers.
        if len(self.first) < LISTED or later.first < self.first[-1:]:
            self.first = list(heapq.merge(self.first, later.first))[:LISTED]


class Tally(Merging):
    """Counts of records by outcome, and their faults.

    ``scored`` records have a result, ``unscored`` ones cannot have one by the rules, ``errors`` are broken records
    (never a score), ``dead`` ones killed their worker. ``fatal`` faults fail the run (exit 2), ``listed`` ones are in
    its report. ``left_out`` has the things that its numbers leave out of their denominators.
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
        """The number of all records."""
        return self.scored + self.unscored + self.errors + self.dead

    def merge(self, later: Tally) -> None:
        """Add the tally of another piece of the same input."""
        self.scored += later.scored
        self.unscored += later.unscored
        self.errors += later.errors
        self.dead += later.dead
        self.fatal.merge(later.fatal)
        self.listed.merge(later.listed)
        self.left_out.merge(later.left_out)


KEPT = 2000
"""The limit of texts in a table; further ones count only in its sum."""


class Table(Merging, array_like=True):
    """A vector of counts for each of many texts, and the sum over all texts.

    With more than KEPT texts, the table keeps those with the lowest checksums. Such a text is among the lowest in every
    part of the input that has it. So no part dropped it, and its counts are complete.
    """

    counts: dict[str, list[int]] = msgspec.field(default_factory=dict)
    total: list[int] = msgspec.field(default_factory=list)

    def add(self, text: str, counts: list[int]) -> None:
        """Add ``counts`` (of the same length in all calls) to those of ``text``."""
        self._add(text, counts)
        self._add_total(counts)

    def merge(self, later: Table) -> None:
        """Add another table."""
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
        """The texts with the largest count number ``by``, without those that have 0; ties in alphabetical order."""
        self.trim()
        present = [item for item in self.counts.items() if item[1][by]]
        return sorted(present, key=lambda item: (-item[1][by], item[0]))[:limit]

    def sum(self, by: int = 0) -> int:
        """The sum of count number ``by`` over all texts, kept or not."""
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


# Seen repeats of a case: a mapping from blocks of sixty-four to their bits. Lists of repeats would make states several
# times as long.

_BITS = 64


def mark_seen(seen: dict[int, int], repeat: int) -> bool:
    """Mark a repeat as seen; return whether it was marked before."""
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
    """Add the repeats of ``later``."""
    for block, bits in later.items():
        into[block] = into.get(block, 0) | bits
