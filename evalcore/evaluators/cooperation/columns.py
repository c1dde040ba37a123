"""A chunk of a log: its lines read into columns, and the columns counted, each by compiled code or by Python.

Python is the reference. Compiled code leaves to Python every unusual line, and every chunk with turns that are far
apart or with amounts that a float may not hold. The state is the same from both.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.reading import BadLine, Event, number, read_line
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.evaluators.cooperation.score import AgentState, TurnSet, kinds_of, unknown_counts
from evalq.evalcore.native import compiled_log
from evalq.evalcore.statistics.exact import ExactSum

Faulty = list[tuple[int, str]]
"""(line, reason) of every faulty line."""
_UnreadLine = tuple[int, ...]
"""(row, line, start, end) of a line to read: its row in the columns, its line number, and its bytes."""

_EXACT = float(1 << 52)
"""Below it, float64 holds every whole amount and the difference of any two exactly."""
_CONTRIBUTED = AgentState.__struct_fields__.index("contributed")


class Columns:
    """Rows in the order of the log.

    For each row, ``agents`` and ``decisions`` are indexes in ``names`` and ``words`` (-1: no decision), ``values`` has
    the amount of the contributed resource (NaN: none), and ``whole`` says whether that is an int. Ints that a float may
    not hold are in ``exact``, by row. ``dry_run`` comes from ``dry_row``, the first row that has one.
    """

    def __init__(self, turns: bytes, agents: bytes, decisions: bytes, values: bytes, whole: bytes) -> None:
        self.turns, self.agents, self.decisions = array("q", turns), array("i", agents), array("i", decisions)
        self.values, self.whole = array("d", values), bytearray(whole)
        self.names: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.exact: dict[int, int] = {}
        self.dry_run: bool | None = None
        self.dry_row = -1

    def set(self, row: int, event: Event, resource_key: str) -> None:
        """Store ``event`` in that row."""
        self.turns[row] = event.turn
        self.agents[row] = self.names.setdefault(event.agent, len(self.names))
        word = event.decision
        self.decisions[row] = -1 if word is None else self.words.setdefault(word, len(self.words))
        # Without the resource there is no snapshot, and the value before stays (SPEC, section 2).
        amount = event.resources.get(resource_key) if event.resources else None
        if isinstance(amount, str):
            amount = number(amount)
        self.values[row] = math.nan if amount is None else amount
        if isinstance(amount, int):
            self.whole[row] = True
            if abs(amount) >= _EXACT:
                self.exact[row] = amount
        if event.dry_run is not None and (self.dry_run is None or row < self.dry_row):
            self.dry_run, self.dry_row = event.dry_run, row

    def drop(self, rows: Iterable[int]) -> None:
        """Remove ``rows``, none of which was set."""
        kept = bytearray(b"\1") * len(self.turns)
        for row in rows:
            kept[row] = 0
        if self.exact:
            self.exact = {
                new: self.exact[old] for new, old in enumerate(compress(range(len(kept)), kept)) if old in self.exact
            }
        self.turns = array("q", compress(self.turns, kept))
        self.agents = array("i", compress(self.agents, kept))
        self.decisions = array("i", compress(self.decisions, kept))
        self.values = array("d", compress(self.values, kept))
        self.whole = bytearray(compress(self.whole, kept))

    def kinds(self, rules: Rules) -> list[int]:
        """The kind of each word by ``rules``; the last one, at index -1, is that of no decision."""
        return kinds_of([*self.words, None], rules)

    def amounts(self) -> list[int | float | None]:
        """The amount of the resource in each row, or None."""
        amounts: list[int | float | None] = [
            None if math.isnan(value) else int(value) if whole else value
            for value, whole in zip(self.values, self.whole, strict=True)
        ]
        for row, amount in self.exact.items():
            amounts[row] = amount
        return amounts


def chunk_state(batch: Batch, rules: Rules) -> tuple[CooperationState, Faulty]:
    """The state of a chunk's rows, and its faulty lines."""
    columns, bad = read_columns(batch, rules.resource_key)
    return count(columns, rules), bad


def read_columns(batch: Batch, resource_key: str) -> tuple[Columns, Faulty]:
    """The rows of a chunk in file order, and its faulty lines; blank lines are skipped."""
    native = compiled_log()
    if native is None:
        return read_in_python(batch, resource_key)
    *packed, names, words, dry_row, dry, unread = native.read_log(
        batch.data, resource_key.encode("utf-8", "surrogatepass")
    )
    columns = Columns(*packed)
    columns.names = {name: index for index, name in enumerate(names)}
    columns.words = {word: index for index, word in enumerate(words)}
    if dry_row >= 0:
        columns.dry_run, columns.dry_row = bool(dry), dry_row
    numbers = iter(memoryview(unread).cast("q"))
    return columns, _read_lines(columns, zip(numbers, numbers, numbers, numbers, strict=True), batch, resource_key)


def read_in_python(batch: Batch, resource_key: str) -> tuple[Columns, Faulty]:
    """The same as `read_columns`, line by line."""
    lines = batch.data.count(b"\n") + 1
    columns = Columns(bytes(8 * lines), bytes(4 * lines), bytes(4 * lines), bytes(8 * lines), bytes(lines))
    return columns, _read_lines(columns, _every_line(batch.data), batch, resource_key)


def _every_line(data: bytes) -> Iterator[_UnreadLine]:
    start = 0
    for line, text in enumerate(data.split(b"\n")):
        yield line, line, start, start + len(text)
        start += len(text) + 1


def _read_lines(columns: Columns, unread: Iterable[_UnreadLine], batch: Batch, resource_key: str) -> Faulty:
    """Read the ``unread`` lines into their rows; remove the rows of faulty and blank lines."""
    faults, dropped = Faulty(), list[int]()
    for row, line, start, end in unread:
        data = batch.data[start:end]
        try:
            event = read_line(data) if data.strip() else None
        except BadLine as error:
            faults.append((batch.first_line + line, str(error)))
            event = None
        if event is None:
            dropped.append(row)
        else:
            columns.set(row, event, resource_key)
    if dropped:
        columns.drop(dropped)
    return faults


def count(columns: Columns, rules: Rules) -> CooperationState:
    """The state of a chunk's rows."""
    native = compiled_log()
    if native is None:
        return count_in_python(columns, rules)
    kinds = columns.kinds(rules)
    counts = native.count_log(
        columns.turns,
        columns.agents,
        columns.decisions,
        columns.values,
        columns.whole,
        bytes(kinds),
        len(columns.names),
    )
    # None without rows, too.
    if counts is None:
        return count_in_python(columns, rules)
    cooperative, ordered, distinct, blocks, agents, snapshots, times = counts
    state = CooperationState(
        rows=len(columns.turns),
        cooperative=cooperative,
        agents={name: _agent(fields) for name, fields in zip(columns.names, agents, strict=True)},
        ordered=ordered,
        first_turn=columns.turns[0],
        last_turn=columns.turns[-1],
        distinct=distinct,
        turns=TurnSet.of_blocks(blocks),
        dry_run=columns.dry_run,
        snapshots=snapshots,
    )
    state.add_words(unknown_counts(columns.words, kinds, times))
    return state


def _agent(fields: tuple[Any, ...]) -> AgentState:
    state = AgentState(*fields)
    # None without drops, as in Python: equal states have equal bytes.
    state.contributed = ExactSum.of(fields[_CONTRIBUTED]) if state.drops else None
    return state


def count_in_python(columns: Columns, rules: Rules) -> CooperationState:
    """The same as `count`, agent by agent and row by row."""
    kinds = columns.kinds(rules)
    by_agent: list[list[int]] = [[] for _ in columns.names]
    for row, agent in enumerate(columns.agents):
        by_agent[agent].append(row)
    turns, amounts = columns.turns.tolist(), columns.amounts()
    groups = (
        (
            name,
            (
                [turns[row] for row in rows],
                [kinds[columns.decisions[row]] for row in rows],
                [amounts[row] for row in rows],
            ),
        )
        for name, rows in zip(columns.names, by_agent, strict=True)
    )
    state = CooperationState.of(turns, groups, columns.dry_run)
    state.snapshots = len(amounts) - amounts.count(None)
    times = Counter(columns.decisions)
    state.add_words(unknown_counts(columns.words, kinds, [times[index] for index in range(len(columns.words))]))
    return state
