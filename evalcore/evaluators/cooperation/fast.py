"""A chunk of a log as columns by compiled code; the lines that it leaves are read one by one, as anywhere else."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation.agents import NEITHER
from evalq.evalcore.evaluators.cooperation.columns import EXACT, NO_VALUE, Columns
from evalq.evalcore.evaluators.cooperation.kinds import kinds_of, unknown_counts, unknown_words
from evalq.evalcore.evaluators.cooperation.lines import BadLine
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.reading import read_columns, read_line
from evalq.evalcore.evaluators.cooperation.record import number
from evalq.evalcore.native import compiled_log

__all__ = ["add_left", "columns_of", "read_chunk"]

_Left = list[tuple[int, int, int, int]]


def read_chunk(batch: Batch, rules: Rules) -> tuple[Columns, list[tuple[int, str]]]:
    """The rows of a chunk in file order, and (line, reason) of every line that is none; blank lines are skipped."""
    native = compiled_log()
    key = rules.resource_key.encode("utf-8", "surrogatepass")
    told = None if native is None else native.read_log(batch.data, key)
    # None, too, where compiled code leaves so many lines that Python reads all of them faster.
    return read_columns(batch, rules) if told is None else columns_of(told, batch, rules)


def columns_of(told: tuple[Any, ...], batch: Batch, rules: Rules) -> tuple[Columns, list[tuple[int, str]]]:
    """The same of what compiled code has ``told`` of the chunk."""
    *packed, names, words, dry_row, dry, left = told
    turns, agents, decisions = (
        np.frombuffer(part, kind) for part, kind in zip(packed[:3], (np.int64, np.int32, np.int32), strict=True)
    )
    values, whole = np.frombuffer(packed[3], np.float64), np.frombuffer(packed[4], np.bool_)
    # The last one is that of rows without a decision, whose number is -1.
    by_word = kinds_of([*words, None], rules)
    kinds = np.array(by_word, dtype=np.int8)[decisions]
    unknown = Counter[str]()
    if NEITHER in by_word[:-1]:
        said = np.bincount(decisions[decisions >= 0], minlength=len(words)).tolist()
        unknown = unknown_counts(words, by_word, said)
    large = {row: float(values[row]) for row in np.flatnonzero(np.abs(values) >= EXACT).tolist()}
    dry_run = bool(dry) if dry_row >= 0 else None
    columns = Columns(turns, agents, kinds, values, whole, large, tuple(names), dry_run, unknown)
    return add_left(columns, dry_row, left, batch, rules) if left else (columns, [])


def add_left(
    columns: Columns, dry_row: int, left: _Left, batch: Batch, rules: Rules
) -> tuple[Columns, list[tuple[int, str]]]:
    """``columns`` with the rows of the lines that were ``left``: (row, line, start, end) of each, counted from 0.

    Those that are no events are taken out. ``dry_row`` is the row that ``columns.dry_run`` is of.
    """
    turns, agents, kinds = columns.turns.copy(), columns.agents.copy(), columns.kinds.copy()
    values, whole = columns.values.copy(), columns.whole.copy()
    names = {name: place for place, name in enumerate(columns.names)}
    amounts: dict[int, int | float | None] = {}
    unknown = Counter(columns.unknown)
    dry_run, faults, dropped = columns.dry_run, list[tuple[int, str]](), list[int]()
    for row, line, start, end in left:
        data = batch.data[start:end]
        try:
            event = None if data.isspace() else read_line(data)
        except BadLine as error:
            faults.append((batch.first_line + line, str(error)))
            event = None
        if event is None:
            dropped.append(row)
            continue
        amounts[row] = amount = _amount(event.resources, rules.resource_key)
        turns[row], agents[row] = event.turn, names.setdefault(event.agent, len(names))
        kinds[row] = kinds_of([event.decision], rules)[0]
        unknown.update(unknown_words([event.decision], [kinds[row]]))
        values[row], whole[row] = NO_VALUE if amount is None else amount, type(amount) is int
        if event.dry_run is not None and (dry_run is None or row < dry_row):
            dry_run, dry_row = event.dry_run, row
    large = columns.large | {row: it for row, it in amounts.items() if it is not None and abs(it) >= EXACT}
    patched = Columns(turns, agents, kinds, values, whole, large, tuple(names), dry_run, unknown)
    return _without(patched, dropped) if dropped else patched, faults


def _without(columns: Columns, dropped: list[int]) -> Columns:
    kept = np.ones(len(columns.turns), dtype=np.bool_)
    kept[dropped] = False
    places = np.cumsum(kept) - 1
    return Columns(
        columns.turns[kept],
        columns.agents[kept],
        columns.kinds[kept],
        columns.values[kept],
        columns.whole[kept],
        {int(places[row]): value for row, value in columns.large.items()},
        columns.names,
        columns.dry_run,
        columns.unknown,
    )


def _amount(held: dict[str, Any] | None, key: str) -> int | float | None:
    value = held.get(key) if held else None
    return number(value) if isinstance(value, str) else value
