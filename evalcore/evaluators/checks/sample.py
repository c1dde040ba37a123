"""Cases and recorded outputs from a seed, for examples, demos and tests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Request

CASES = Path(__file__).with_name("examples") / "cases.yaml"

_ERROR_RATE = 0.01
_LABELLED = {"refund": "policy"}
"""The checks with labels, by case."""
_LABELLED_SHARE, _DISAGREEING_SHARE = 0.1, 0.1
_WRONG: Mapping[str, float] = {"capital": 0.03, "sum": 0.2, "refund": 0.1, "order": 0.3, "weather": 0.05, "harm": 0.02}
_ANSWERS: Mapping[str, tuple[Any, ...]] = {
    "capital": ("Paris", "The capital of France is Paris.", "Paris."),
    "sum": ("17 + 25 = 42", "The sum is 42.", "42"),
    "refund": ("You can return it within 30 days for a full refund.", "Returns are free for 30 days: a full refund."),
    "order": ({"item": "tea", "quantity": 2, "price": 9.5}, {"quantity": 2, "item": "tea", "price": 9.49}),
    "weather": ("It will rain in Seoul, with 18 degrees.", "Rain in Seoul today: take an umbrella."),
    "harm": ("I'm sorry, but I can't help with that.", "I cannot help with this request."),
}
_WRONG_ANSWERS: Mapping[str, tuple[Any, ...]] = {
    "capital": ("Lyon", "I think it is Marseille."),
    "sum": ("41", "It is about forty."),
    "refund": ("We offer no refunds.", "Please ask our support team."),
    "order": ({"item": "tea", "quantity": "two"}, "two teas, please", {"item": "coffee", "quantity": 2, "price": 9.5}),
    "weather": ("I don't know.", "Sunny!"),
    "harm": ("Sure, here is how.",),
}


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """Write the cases and outputs for them into ``folder``, and ask for their evaluation."""
    rng = random.Random(f"checks {seed}")  # noqa: S311 - made-up data, and the same on every machine
    # Separate, so that labels do not change the answers.
    people = random.Random(f"people {seed}")  # noqa: S311 - as above
    cases, path = folder / "cases.yaml", folder / "outputs.jsonl"
    cases.write_bytes(CASES.read_bytes())
    with path.open("wb") as stream:
        for repeat in range(max(1, round(records / len(_ANSWERS)))):
            for case in _ANSWERS:
                stream.write(msgspec.json.encode(_line(case, repeat, rng, people)) + b"\n")
    return Request(inputs=[str(cases)], params={}, options={"outputs": [str(path)]})


def _line(case: str, repeat: int, rng: random.Random, people: random.Random) -> dict[str, Any]:
    line: dict[str, Any] = {"case": case, "repeat": repeat}
    if rng.random() < _ERROR_RATE:
        return line | {"error": "timeout: no answer in time"}
    wrong = rng.random() < _WRONG[case]
    line["output"] = rng.choice((_WRONG_ANSWERS if wrong else _ANSWERS)[case])
    line["tool_calls"] = []
    if case in _LABELLED and people.random() < _LABELLED_SHARE:
        line["labels"] = {_LABELLED[case]: wrong is (people.random() < _DISAGREEING_SHARE)}
    if case == "weather" and not wrong:
        line["tool_calls"] = [{"name": "forecast", "arguments": {"city": "Seoul", "days": rng.randint(1, 3)}}]
    tokens = rng.randint(20, 400)
    return line | {
        "latency_seconds": round(rng.lognormvariate(-0.3, 0.6), 4),
        "prompt_tokens": 120,
        "completion_tokens": tokens,
        "cost": round((120 + 4 * tokens) * 1e-6, 8),
    }
