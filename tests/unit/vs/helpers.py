"""What the tests of vs build on: outputs that pass at every level, lines, params, and evaluations of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.vs import VsParams, evaluator
from evalq.evalcore.fold import Evaluation, evaluate_files

Json = Any

FULL = "02-theoretical-framework-architect"
ENHANCED = "01-research-question-refiner"
LIGHT = "11-analysis-code-generator"

PARAMS: dict[str, Any] = {
    "cases": [
        {"id": "F", "agent": FULL},
        {"id": "E", "agent": ENHANCED},
        {"id": "L", "agent": LIGHT},
    ]
}


def good_output(option: str = "a quiet theory") -> dict[str, Any]:
    """An output that keeps the contract and passes every validator of every level."""
    return {
        "agent_id": FULL,
        "vs_level": "Full",
        "execution_timestamp": "2026-03-02T09:00:00Z",
        "vs_metadata": {
            "phase_executed": [0, 1, 2, 3, 4, 5],
            "modal_identified": ["usual"],
            "t_scores": [
                {"option": "usual", "score": 0.9, "rationale": "everyone says it"},
                {"option": option, "score": 0.3, "rationale": "hardly anyone does"},
            ],
            "final_selection": {"option": option, "t_score": 0.3, "justification": "it fits"},
        },
        "content": {"summary": "s", "main_output": {}, "confidence": 0.8},
        "provenance": {"sources": ["a"], "reasoning_trace": ["b"], "assumptions": []},
        "self_critique": {
            "strengths": ["1", "2"],
            "weaknesses": ["1", "2"],
            "improvement_suggestions": ["1"],
            "alternative_perspectives": ["1"],
        },
    }


def with_value(output: dict[str, Any], path: str, value: Json) -> dict[str, Any]:
    """A copy of ``output`` with the value at the dotted ``path`` set."""
    copy = json.loads(json.dumps(output))
    *parents, last = path.split(".")
    holder = copy
    for key in parents:
        holder = holder[key]
    holder[last] = value
    return dict(copy)


def without(output: dict[str, Any], path: str) -> dict[str, Any]:
    """A copy of ``output`` without the key at the dotted ``path``."""
    copy = json.loads(json.dumps(output))
    *parents, last = path.split(".")
    holder = copy
    for key in parents:
        holder = holder[key]
    del holder[last]
    return dict(copy)


OWNERS = {"F": (FULL, "Full"), "E": (ENHANCED, "Enhanced"), "L": (LIGHT, "Light")}


def of_case(case: str, output: Json) -> Json:
    """``output`` as the agent of one of PARAMS' cases gives it, where it is a good output's at all."""
    if case not in OWNERS or not isinstance(output, dict) or output.get("agent_id") != FULL:
        return output
    agent, level = OWNERS[case]
    return {**output, "agent_id": agent, **({"vs_level": level} if output.get("vs_level") == "Full" else {})}


def line(case: str, repeat: int, output: Json) -> bytes:
    """One recorded output, of its case's agent."""
    output = of_case(case, output)
    return json.dumps({"case": case, "repeat": repeat, "output": output}, ensure_ascii=False).encode()


def runs_of(case: str, options: Iterable[str]) -> list[bytes]:
    """One line a repeat of good outputs that select ``options``."""
    return [line(case, repeat, good_output(option)) for repeat, option in enumerate(options)]


def stop_mark(calls: int) -> dict[str, Any]:
    """What a sweep of at most ``calls`` calls a case that may stop sooner writes into its lines."""
    return {"rule": "when-decided", "of": calls}


def marked(data: bytes, stop: Json = None) -> bytes:
    """The line ``data`` as of a sweep that could stop, of a hundred calls unless ``stop`` says otherwise."""
    return json.dumps(json.loads(data) | {"stop": stop_mark(100) if stop is None else stop}).encode()


def make_params(**changes: Json) -> VsParams:
    """PARAMS with ``changes`` laid over them, checked."""
    return validate(VsParams, {**PARAMS, **changes}, "params")


def evaluated(
    folder: Path, lines: Sequence[bytes], params: dict[str, Any] | None = None, chunk_size: int | None = None
) -> Evaluation:
    """``lines`` evaluated as one file, by PARAMS unless others are given."""
    path = folder / "outputs.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return evaluate_files(evaluator, [path], PARAMS if params is None else params, chunk_size=chunk_size)


def entry(evaluation: Evaluation, case: str) -> dict[str, Any]:
    """The mode_collapse entry of a case."""
    return next(item for item in evaluation.report["results"]["mode_collapse"] if item["case"] == case)


def detail(evaluation: Evaluation, case: str) -> dict[str, Any]:
    """The detailed result of a case."""
    details = evaluation.report["results"]["test_run"]["detailed_results"]
    return next(item for item in details if item["test_id"] == case)
