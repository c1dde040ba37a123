"""The state of a chunk of a log: counted by compiled code as it reads, else by columns.

Nothing here imports NumPy, which takes longer to load than the compiled code to count a chunk. It comes with the other
ways, when the first chunk needs them: where nothing is compiled, where a line was left, where turns go back.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.evaluators.cooperation.agents import AgentState
from evalq.evalcore.evaluators.cooperation.kinds import kinds_of, unknown_counts
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.state import CooperationState
from evalq.evalcore.evaluators.cooperation.turns import TurnSet
from evalq.evalcore.native import compiled_log
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["Faulty", "chunk_state"]

Faulty = list[tuple[int, str]]
"""(line, reason) of every line that is no event."""

_CONTRIBUTED = AgentState.__struct_fields__.index("contributed")


def chunk_state(batch: Batch, rules: Rules) -> tuple[CooperationState, Faulty]:
    """The state of a chunk's rows, and the lines that are none."""
    native = compiled_log()
    if native is None:
        return _in_python(batch, rules)
    told = native.read_log(batch.data, rules.resource_key.encode("utf-8", "surrogatepass"))
    state = None if told is None else _counted(native, told, rules)
    # No faults: compiled code counts only a chunk of which it left no line.
    return (state, []) if state is not None else _by_columns(told, batch, rules)


def _counted(native: ModuleType, told: tuple[Any, ...], rules: Rules) -> CooperationState | None:
    """The state of all rows that compiled code has read; None where it left some, or Python has to count them."""
    *packed, names, words, dry_row, dry, left = told
    # The last one is that of rows without a decision, whose number is -1.
    kinds = kinds_of([*words, None], rules)
    found = None if left else native.count_log(*packed, bytes(kinds), len(names))
    if found is None:
        return None
    cooperative, distinct, blocks, agents, snapshots, said = found
    own = {name: _agent(fields) for name, fields in zip(names, agents, strict=True)}
    state = CooperationState(
        rows=sum(agent.rows for agent in own.values()),
        cooperative=cooperative,
        agents=own,
        first_turn=min(agent.first_turn for agent in own.values()),
        last_turn=max(agent.last_turn for agent in own.values()),
        distinct=distinct,
        turns=TurnSet.of_blocks(blocks),
        dry_run=bool(dry) if dry_row >= 0 else None,
        snapshots=snapshots,
    )
    state.add_words(unknown_counts(words, kinds, said))
    return state


def _agent(fields: tuple[Any, ...]) -> AgentState:
    state = AgentState(*fields)
    # None where nothing fell, as counting by columns leaves it: equal states are equal bytes.
    state.contributed = ExactSum.of(fields[_CONTRIBUTED]) if state.drops else None
    return state


def _in_python(batch: Batch, rules: Rules) -> tuple[CooperationState, Faulty]:
    from evalq.evalcore.evaluators.cooperation.counting import count
    from evalq.evalcore.evaluators.cooperation.reading import read_columns

    rows, bad = read_columns(batch, rules)
    return count(rows), bad


def _by_columns(told: tuple[Any, ...] | None, batch: Batch, rules: Rules) -> tuple[CooperationState, Faulty]:
    """The same of what compiled code has ``told``; where that is None it left so many lines that Python is faster."""
    if told is None:
        return _in_python(batch, rules)
    from evalq.evalcore.evaluators.cooperation.counting import count
    from evalq.evalcore.evaluators.cooperation.fast import columns_of

    rows, bad = columns_of(told, batch, rules)
    return count(rows), bad
