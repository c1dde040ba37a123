"""Params, lines and reports of checks in one line each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.checks import ChecksParams, ChecksState, evaluator
from evalq.evalcore.fold import Evaluation, evaluate_files

CASES: list[dict[str, Any]] = [
    {"id": "a", "checks": [{"contains": "yes"}, {"max-length": 9, "weight": 0}], "tags": ["x"]},
    {"id": "b", "checks": [{"contains": "yes"}, {"not-contains": "no"}], "tags": ["x", "y"], "weight": 3},
    {"id": "c", "checks": [{"max-cost": 1}], "thresholds": {"rates": [{"number": "pass-rate", "least": 0.5}]}},
]


def params_of(cases: list[dict[str, Any]] | None = None, **more: Any) -> ChecksParams:
    """Params of these cases."""
    return validate(ChecksParams, {"cases": CASES if cases is None else cases, **more}, "params")


def line(case: str, repeat: int, output: Any = "yes", **more: Any) -> bytes:
    """A recorded output."""
    return json.dumps({"case": case, "repeat": repeat, "output": output, **more}).encode()


def stop_mark(of: int) -> dict[str, Any]:
    """What a line says of a sweep that could stop."""
    return {"stop": {"rule": "when-decided", "of": of}}


def evaluated(folder: Path, lines: list[bytes], params: ChecksParams | None = None, **more: Any) -> Evaluation:
    """A whole run over ``lines``."""
    path = folder / "outputs.jsonl"
    path.write_bytes(b"".join(data + b"\n" for data in lines))
    plain = (params or params_of()).model_dump(mode="json")
    return evaluate_files("checks", [path], plain, **more)


def state_of(chunk: list[bytes], params: ChecksParams) -> ChecksState:
    """What a chunk adds up to, by way of the wire."""
    batch = Batch("f", 1, b"".join(data + b"\n" for data in chunk))
    return ChecksState.from_wire(evaluator.evaluate(batch, params).state.to_wire())


def counts(state: ChecksState) -> bytes:
    """The bytes of a state, but for what tells where its lines stand."""
    state.last, state.failures.first, state.overlap = 0, [], False
    return state.to_wire()


def merged_anyhow(chunk: list[bytes], params: ChecksParams, data: st.DataObject) -> ChecksState:
    """``chunk`` cut anywhere, paired off anyhow, merged in any order."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chunk)), max_size=6)))
    pieces = [chunk[a:b] for a, b in zip([0, *cuts], [*cuts, len(chunk)], strict=True)]
    states = [state_of(piece, params) for piece in data.draw(st.permutations(pieces))]
    while len(states) > 1:
        at = data.draw(st.integers(0, len(states) - 2))
        states[at].merge(states.pop(at + 1))
    return states[0]
