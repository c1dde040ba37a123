"""The rules of cooperation: the kinds of decisions, and the state of one agent's rows in a piece of a log.

Every number of an agent depends only on its rows by turn, and a piece keeps what its neighbours need at both ends.
A stable sort by (turn, agent) does not reorder the rows of an agent whose turns never decrease. Such an agent has the
numbers of the sorted log, in any mix with other agents' rows. So only an agent whose turns decrease (``ordered`` is
false) makes the sort necessary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import sub
from typing import Self

import msgspec

from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.model.state import Merging
from evalq.evalcore.statistics.exact import ExactSum

_NEITHER, COOPERATIVE, BETRAYAL = 0, 1, 2
"""The kinds of decisions by the rules."""

Number = int | float
_MOST_LETTERS = 80
# A power of two: block and bit of a turn are a shift and a mask, for negative turns as well.
_BLOCK_BITS = 8
MOST_BLOCKS = 8192


def kinds_of(decisions: Iterable[str | None], rules: Rules) -> list[int]:
    """The kind of each decision by the rules."""
    # Cooperative words last, so that they win if a word is in both lists.
    kinds = dict.fromkeys(rules.betrayal_decisions, BETRAYAL) | dict.fromkeys(rules.cooperative_decisions, COOPERATIVE)
    return [_NEITHER if decision is None else kinds.get(decision.lower(), _NEITHER) for decision in decisions]


def unknown_counts(words: Iterable[str], kinds: Iterable[int], times: Iterable[int]) -> Counter[str]:
    """How often each word occurs that no rule knows, from the ``times`` of each spelling.

    Words are in lower case, cut to 80 characters, and without halves of surrogate pairs, which UTF-8 cannot carry.
    """
    counts = Counter[str]()
    # The last kind is that of rows without a decision.
    for word, kind, rows in zip(words, kinds, times, strict=False):
        if kind == _NEITHER and rows:
            counts[word.lower()[:_MOST_LETTERS].encode("utf-8", "replace").decode()] += rows
    return counts


class AgentState(Merging, array_like=True, gc=False):
    """One agent's rows; if they are not ``ordered``, only their number.

    ``contributed`` is the exact sum of the ``drops`` of the resource within these rows, or None without drops.
    ``opening`` is the turn of the first cooperative row, if no betrayal comes before it. ``pending`` is the
    turn of the last betrayal, if no cooperative row comes after it. ``betrayed`` says whether there is any betrayal.
    ``repeats`` counts rows with the turn of the row before; ``repeated_turn`` is the first such turn.
    """

    rows: int = 0
    ordered: bool = True
    first_turn: int = 0
    last_turn: int = 0
    first_value: Number | None = None
    last_value: Number | None = None
    drops: int = 0
    contributed: ExactSum | None = None
    opening: int | None = None
    pending: int | None = None
    betrayed: bool = False
    recoveries: int = 0
    recovery_turns: int = 0
    repeats: int = 0
    repeated_turn: int | None = None

    @classmethod
    def of(cls, turns: list[int], kinds: list[int], values: Sequence[Number | None]) -> AgentState:
        """The state of rows given as columns: turn, kind of decision, resource (or None)."""
        if turns != sorted(turns):
            return cls(len(turns), ordered=False)
        state = cls(len(turns), first_turn=turns[0], last_turn=turns[-1])
        repeated = [turn for before, turn in pairwise(turns) if turn == before]
        state.repeats, state.repeated_turn = len(repeated), repeated[0] if repeated else None
        state._contribute([value for value in values if value is not None])
        state._decide(turns, kinds)
        return state

    def merge(self, later: AgentState) -> None:
        """Add the same agent's rows that follow these, in place."""
        if not self.rows or not later.rows:
            if later.rows:
                self._become(later)
            return
        # Rows of one turn on both sides keep their order, as in a stable sort.
        if not (self.ordered and later.ordered and self.last_turn <= later.first_turn):
            self._forget(self.rows + later.rows)
            return
        self._join_repeats(later)
        self.rows += later.rows
        self.last_turn = later.last_turn
        self._join_values(later)
        self._join_decisions(later)

    def total(self) -> float:
        """The whole contribution, rounded once."""
        return self.contributed.value() if self.contributed else 0.0

    def _contribute(self, values: list[Number]) -> None:
        if not values:
            return
        self.first_value, self.last_value = values[0], values[-1]
        self._add([drop for drop in map(sub, values, values[1:]) if drop > 0])

    def _add(self, drops: list[Number]) -> None:
        if drops:
            self.drops += len(drops)
            self._add_sum(_exact(drops))

    def _add_sum(self, amount: ExactSum | None) -> None:
        if self.contributed is None:
            self.contributed = amount
        elif amount is not None:
            self.contributed.merge(amount)

    def _decide(self, turns: list[int], kinds: list[int]) -> None:
        self.betrayed = BETRAYAL in kinds
        if COOPERATIVE in kinds:
            first = kinds.index(COOPERATIVE)
            if not self.betrayed or first < kinds.index(BETRAYAL):
                self.opening = turns[first]
        if self.betrayed:
            self._recover(turns, kinds)

    def _recover(self, turns: Sequence[int], kinds: Sequence[int]) -> None:
        """End the pending betrayal at each cooperative row; in a later turn, that is a recovery."""
        pending = self.pending
        for turn, kind in zip(turns, kinds, strict=True):
            if kind == BETRAYAL:
                pending = turn
            elif kind == COOPERATIVE and pending is not None:
                if turn > pending:
                    self.recoveries += 1
                    self.recovery_turns += turn - pending
                pending = None
        self.pending = pending

    def _join_repeats(self, later: AgentState) -> None:
        across = self.last_turn == later.first_turn
        self.repeats += later.repeats + across
        if self.repeated_turn is None:
            # A turn on both sides of the cut is the lowest of the later rows.
            self.repeated_turn = later.first_turn if across else later.repeated_turn

    def _join_values(self, later: AgentState) -> None:
        self.drops += later.drops
        self._add_sum(later.contributed)
        if later.first_value is None:
            return
        if self.last_value is None:
            self.first_value = later.first_value
        # The drop across the cut, which is in neither part.
        elif (drop := self.last_value - later.first_value) > 0:
            self._add([drop])
        self.last_value = later.last_value

    def _join_decisions(self, later: AgentState) -> None:
        if later.opening is not None:
            if self.opening is None and not self.betrayed:
                self.opening = later.opening
            # Across the cut: the first cooperation of the later rows ends a pending betrayal.
            self._recover([later.opening], [COOPERATIVE])
        if later.betrayed:
            self.betrayed, self.pending = True, later.pending
        self.recoveries += later.recoveries
        self.recovery_turns += later.recovery_turns

    def _forget(self, rows: int) -> None:
        self._become(AgentState(rows, ordered=False))

    def _become(self, other: AgentState) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(other, name))


def _exact(values: Sequence[Number]) -> ExactSum:
    """The exact sum of finite numbers: it replaces many floats by a few with no common digits.

    math.fsum rounds the exact sum once. The rest is again a sum: of the values, less that float. It repeats until the
    rest is 0.
    """
    whole = sum(value for value in values if type(value) is int)
    terms = [value for value in values if type(value) is float]
    parts: list[Number] = [whole]
    while rest := math.fsum(terms):
        parts.append(rest)
        terms.append(-rest)
    return ExactSum.of(parts)


class TurnSet(Merging):
    """Distinct turns as bitmaps of 256 neighbours each (hexadecimal), by block number: they travel with every chunk.

    It has up to MOST_BLOCKS blocks: two million turns in a row, some MB. A set that needs more is ``full``, and stays
    empty: it no longer has its turns. A union never has fewer blocks than its parts, so whether a merged set is full
    does not depend on the order of merges.
    """

    blocks: dict[str, str] = msgspec.field(default_factory=dict)
    full: bool = False

    @classmethod
    def of(cls, turns: Iterable[int]) -> Self:
        """The set of ``turns``."""
        masks: dict[int, int] = {}
        for turn in turns:
            block = turn >> _BLOCK_BITS
            masks[block] = masks.get(block, 0) | 1 << (turn & 255)
        return cls({str(block): format(mask, "x") for block, mask in masks.items()})._capped()

    @classmethod
    def of_blocks(cls, blocks: dict[str, str]) -> Self:
        """The set with the bitmaps ``blocks``."""
        return cls(blocks)._capped()

    def merge(self, later: TurnSet) -> None:
        """Add the turns of ``later``, in place, in time proportional to its size."""
        self.full = self.full or later.full
        for block, mask in later.blocks.items():
            mine = self.blocks.get(block)
            self.blocks[block] = mask if mine is None else format(int(mine, 16) | int(mask, 16), "x")
        self._capped()

    def count(self) -> int:
        """The number of distinct turns; meaningless if ``full``."""
        return sum(int(mask, 16).bit_count() for mask in self.blocks.values())

    def _capped(self) -> Self:
        if self.full or len(self.blocks) > MOST_BLOCKS:
            self.full, self.blocks = True, {}
        return self
