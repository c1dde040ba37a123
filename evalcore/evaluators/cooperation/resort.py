"""The state of a log whose rows must be sorted first: an external merge sort in bounded memory.

Rows are sorted stably by turn. The specification sorts by (turn, agent). The result is the same, since every number
belongs to one agent or does not depend on order.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.errors import InputChanged
from evalq.evalcore.evaluators.cooperation.columns import read_columns
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.report import AgentRows, CooperationState
from evalq.evalcore.model.manifest import BOM

_TURN = attrgetter("turn")
_PIECE_ROWS = 1 << 14
_READ_BYTES = 1 << 16


class SortLimits(msgspec.Struct, frozen=True):
    """Limits of memory: ``run_rows`` rows to sort, ``fan_in`` open files to merge, ``block_bytes`` of the log."""

    run_rows: int = 200_000
    fan_in: int = 64
    block_bytes: int = 1 << 20


class _SortedRow(msgspec.Struct, array_like=True, gc=False):
    """The values of an event for the metrics. JSON distinguishes ints and floats, and loses no digit."""

    turn: int
    agent: str
    kind: int
    value: int | float | None


_DECODER = msgspec.json.Decoder(_SortedRow)
_ENCODER = msgspec.json.Encoder()


def resorted(
    state: CooperationState, rules: Rules, reopen: Callable[[], BinaryIO], scratch: Path, limits: SortLimits
) -> CooperationState:
    """The state of the same rows, sorted: the first of the log, as many as ``state`` has, since a run may stop early.

    Raises InputChanged if the rows are not those of ``state``.
    """
    fresh = CooperationState.zero()
    with tempfile.TemporaryDirectory(prefix="sort-", dir=scratch) as folder:
        with reopen() as stream:
            runs = list(
                _sorted_runs(islice(_rows(stream, rules, limits, set(state.missing)), state.rows), Path(folder), limits)
            )
        rows = _merge_files(_merge_down(runs, limits))
        while piece := list(islice(rows, _PIECE_ROWS)):
            fresh.merge(_summarize(piece))
    # The log may have been replaced since its chunks were computed.
    if _identity(fresh) != _identity(state):
        raise InputChanged(f"a log changed between its two readings ({state.rows} events, then {fresh.rows})")
    fresh.dry_run, fresh.missing, fresh.resorted = state.dry_run, state.missing, True
    # These do not depend on order.
    fresh.unknown, fresh.snapshots = state.unknown, state.snapshots
    return fresh


def _identity(state: CooperationState) -> tuple[int, dict[str, int]]:
    """Counts that are equal for the same rows in any order."""
    return state.cooperative, {name: agent.rows for name, agent in state.agents.items()}


def _rows(stream: BinaryIO, rules: Rules, limits: SortLimits, missing: set[int]) -> Iterator[_SortedRow]:
    if stream.read(len(BOM)) != BOM:
        stream.seek(0)
    first = 1
    while lines := stream.readlines(limits.block_bytes):
        wanted = [line for number, line in enumerate(lines, first) if number not in missing] if missing else lines
        first += len(lines)
        columns, _ = read_columns(Batch("", 1, b"".join(wanted)), rules.resource_key)
        names, kinds = list(columns.names), columns.kinds(rules)
        rows = zip(columns.turns, columns.agents, columns.decisions, columns.amounts(), strict=True)
        for turn, agent, word, amount in rows:
            yield _SortedRow(turn, names[agent], kinds[word], amount)


def _sorted_runs(rows: Iterator[_SortedRow], folder: Path, limits: SortLimits) -> Iterator[Path]:
    """Files of sorted rows, in the order of the log."""
    for number in count():
        run = list(islice(rows, limits.run_rows))
        if not run:
            return
        run.sort(key=_TURN)
        yield _write_rows(folder / f"run-{number}.jsonl", iter(run))


def _merge_down(runs: list[Path], limits: SortLimits) -> list[Path]:
    """At most ``fan_in`` files with the same rows: neighbours are merged, so rows of one turn keep their order."""
    while len(runs) > limits.fan_in:
        groups = [runs[at : at + limits.fan_in] for at in range(0, len(runs), limits.fan_in)]
        runs = [_merge_group(group) for group in groups]
    return runs


def _merge_group(group: list[Path]) -> Path:
    target = _write_rows(group[0].with_suffix(".merged"), _merge_files(group))
    for path in group:
        path.unlink()
    return target.replace(group[0])


def _merge_files(runs: Sequence[Path]) -> Iterator[_SortedRow]:
    """The rows of sorted files in order; of one turn, the earlier file's come first."""
    return heapq.merge(*map(_read_rows, runs), key=_TURN)


def _write_rows(path: Path, rows: Iterator[_SortedRow]) -> Path:
    with path.open("wb") as out:
        while piece := list(islice(rows, _PIECE_ROWS)):
            out.write(_ENCODER.encode_lines(piece))
    return path


def _read_rows(path: Path) -> Iterator[_SortedRow]:
    with path.open("rb") as stream:
        while lines := stream.readlines(_READ_BYTES):
            yield from _DECODER.decode_lines(b"".join(lines))


def _summarize(rows: list[_SortedRow]) -> CooperationState:
    groups: defaultdict[str, list[_SortedRow]] = defaultdict(list)
    for row in rows:
        groups[row.agent].append(row)
    columns: Iterable[tuple[str, AgentRows]] = (
        (agent, ([row.turn for row in group], [row.kind for row in group], [row.value for row in group]))
        for agent, group in groups.items()
    )
    return CooperationState.of([row.turn for row in rows], columns, None)
