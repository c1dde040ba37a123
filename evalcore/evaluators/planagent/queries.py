"""The rows of each Query ID: with their lines while there are not too many, then only which rounds there are."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from evalq.evalcore.evaluators.planagent.packed_rows import no_round_twice, split, unpack_rows
from evalq.evalcore.evaluators.planagent.pairs import Pairs, QueryReview
from evalq.evalcore.model.state import LISTED, Merging

__all__ = ["HELD_BYTES", "MAX_BYTES", "Queries", "Repeat"]

HELD_BYTES = 1 << 24
"""How many bytes of packed rows are held: a million rows."""
MAX_BYTES = 1 << 14
"""How many are held of one Query ID, over 1,000 rows: adding one costs as many bytes as there are."""


# A tuple, not a Struct: every struct in a state has to say how it merges, and this has nothing to merge.
class Repeat(NamedTuple):
    """A row whose Query ID and round another row had before."""

    line: int
    query: str
    round: str
    first_line: int


class Queries(Merging, array_like=True):
    """Rows by Query ID, in input order, as `pack_row` packs them: ``held`` bytes.

    Where they are more than HELD_BYTES, or one Query ID has more than MAX_BYTES, ``pairs`` has all of them in place
    of ``rows``. It has no lines: where rows repeat each other, `repeats.settle_repeats` finds the first of them in the
    input, but for the ``dead`` ones, whose lines are here, and they are ``found``.
    """

    rows: dict[str, bytes] = msgspec.field(default_factory=dict)
    held: int = 0
    pairs: Pairs | None = None
    dead: list[int] = msgspec.field(default_factory=list)
    found: list[Repeat] = msgspec.field(default_factory=list)

    def add(self, query: str, row: bytes) -> None:
        """Add one packed row behind those of the same Query ID; `finish` after the last one."""
        old = self.rows.get(query)
        if old is None:
            self.rows[query] = row
        # By what was there before, as lines.h in the compiled code does: both must turn to pairs at the same row.
        elif len(old) < MAX_BYTES:
            self.rows[query] = old + row
        else:
            if self.pairs is None:
                self.pairs = Pairs()
            self.pairs.take({query: row})

    def finish(self) -> None:
        """All rows of a chunk were added."""
        self.held = sum(map(len, self.rows.values()))
        if self.pairs is not None or self.held > HELD_BYTES:
            self._to_pairs()

    def merge(self, later: Queries) -> None:
        """Take in the rows that follow behind these."""
        self.dead += later.dead
        self.found += later.found
        if self.pairs is None and later.pairs is None and self.held + later.held <= HELD_BYTES:
            self._extend(later)
            return
        pairs = self._to_pairs()
        if later.pairs is None:
            pairs.take(later.rows)
        else:
            pairs.merge(later.pairs)

    def review(self, rounds: int, pass_mark: int) -> QueryReview:
        """Compare every Query ID over its rounds, of which the input has ``rounds``."""
        pairs = self.pairs
        if pairs is None:
            pairs = Pairs()
            # Of a copy: `take` empties what it is given, and `repeats` still reads the lines.
            pairs.take(self.rows.copy())
        return pairs.review(rounds, pass_mark)

    def repeats(self) -> tuple[int, list[Repeat]]:
        """How many rows repeat a (Query ID, round), and the LISTED first of them, by line."""
        if self.pairs is not None:
            return self.pairs.repeated, self.found
        found = list(self._repeats())
        # By line, which is a repeat's first field: Query IDs stand in the order of their first rows.
        return len(found), heapq.nsmallest(LISTED, found)

    def drop_lines(self, found: list[Repeat]) -> None:
        """Keep ``found`` of `repeats`, and no other line: `review` then has nothing to copy."""
        if self.pairs is None:
            self.found = found
            self._to_pairs()

    def _repeats(self) -> Iterator[Repeat]:
        for query, packed in self.rows.items():
            if no_round_twice(packed):
                continue
            first: dict[str, int] = {}
            for round_, _, line in unpack_rows(packed):
                seen = first.setdefault(round_, line)
                if seen != line:
                    yield Repeat(line, query, round_, seen)

    def _extend(self, later: Queries) -> None:
        self.held += later.held
        for query, rows in later.rows.items():
            old = self.rows.get(query)
            if old is None:
                self.rows[query] = rows
            elif len(old) + len(rows) < MAX_BYTES:
                self.rows[query] = old + rows
            else:
                # Row by row: whether they are too many must not depend on where the input was cut.
                for row in split(rows):
                    self.add(query, row)
        if self.pairs is not None:
            self._to_pairs()

    def _to_pairs(self) -> Pairs:
        if self.pairs is None:
            self.pairs = Pairs()
        self.pairs.take(self.rows)
        self.held = 0
        return self.pairs
