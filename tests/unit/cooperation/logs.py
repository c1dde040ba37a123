"""Logs for property tests: rows that differ as real logs do, and how they are written and evaluated."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from evalq.evalcore.evaluators.cooperation import Cooperation, evaluator
from evalq.evalcore.evaluators.cooperation.columns import chunk_state
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.fold import Evaluation, evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.records.batch import Batch

DECISIONS = [None, "cooperate", "JOIN", "defect", "Steal", "betray", "assist", "wait", " cooperate", ""]

amounts = st.one_of(
    st.integers(-5, 20),
    st.integers(-(10**30), 10**30),
    st.floats(-1e6, 1e6),
    st.floats(-1e280, 1e280),
    st.sampled_from(["7", "3.5", "-2", "1e3", " 4 ", 0.1, 2**53, 2**53 + 1, float(2**53), -0.0]),
)
resources: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just([]),
    st.dictionaries(st.sampled_from(["stone", "stone", "wood", "food"]), amounts, max_size=3),
)


@cache
def _logs(most_turn: int, spacing: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Made once: where each example makes its own strategies, that takes as long as what is tested."""
    turn = st.integers(-2, most_turn).map(lambda n: n * spacing)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "turn": st.one_of(turn, turn, turn.map(str), turn.map(float)),
        "agent": st.sampled_from(["ada", "bo", "Cy", "다나"]),
        "decision": st.sampled_from(DECISIONS),
        "resources": resources,
        "message": st.sampled_from(["", "hello {[", "안녕"]),
    }
    return st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=40)


_SPACINGS = st.sampled_from([1, 1, 100, 10**9])
_ORDERS = st.sampled_from(["turn", "agent", "none"])
_EITHER = st.booleans()


@st.composite
def rows(draw: st.DrawFn, most_turn: int = 12) -> list[dict[str, Any]]:
    """Rows of a log: in turn order, in order within each agent, or in none; turns repeat and jump."""
    log = draw(_logs(most_turn, draw(_SPACINGS)))
    order = draw(_ORDERS)
    if order != "none":
        log.sort(key=lambda row: (row["agent"] if order == "agent" else "", float(row["turn"])))
    for row in log:
        for name in ("decision", "resources"):
            if row[name] is None and draw(_EITHER):
                del row[name]
    return log


def as_jsonl(log: list[dict[str, Any]]) -> bytes:
    """The log as a file's bytes."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in log).encode()


def run(data: bytes, chunk_size: int | None = None, chosen: Cooperation = evaluator, **params: Any) -> Evaluation:
    """Evaluate a log of these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        path.write_bytes(data)
        evaluation = evaluate_files(chosen, [path], params, chunk_size=chunk_size)
        evaluation.report["results"]["logs"]["events.jsonl"]["metadata"]["log_path"] = "events.jsonl"
        return Evaluation(evaluation.report, [line.replace(folder.encode() + b"/", b"") for line in evaluation.lines])


def entry(evaluation: Evaluation) -> dict[str, Any]:
    """The only log's metrics."""
    (only,) = evaluation.report["results"]["logs"].values()
    assert isinstance(only, dict)
    return only


def report_bytes(evaluation: Evaluation) -> bytes:
    """report.json and records.jsonl in one string."""
    return canonical_json(evaluation.report) + b"\n" + b"\n".join(evaluation.lines)


def state_of(log: list[dict[str, Any]]) -> CooperationState:
    """The state of a piece of a log, by way of the wire."""
    state, faults = chunk_state(Batch("x", 1, as_jsonl(log)), Rules())
    assert not faults
    return CooperationState.from_wire(state.to_wire())
