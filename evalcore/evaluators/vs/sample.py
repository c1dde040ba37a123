"""Recorded outputs made from a seed, for examples, demos and tests: some cases collapse, some outputs are broken.

The same golden set, number of repeats and seed give the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.vs.golden import load_golden
from evalq.evalcore.evaluators.vs.params import LEVELS, Expectation, GoldenCase, Level, VsParams, default_agents
from evalq.evalcore.model.calls import WHEN_DECIDED

GOLDEN = Path(__file__).with_name("examples") / "golden.yaml"

_LENSES = (
    "care work",
    "time budgets",
    "신뢰",
    "tacit rules",
    "돌봄",
    "queueing",
    "장소 애착",
    "slow feedback",
    "위신",
    "repair",
)
_FORMS = ("threshold model", "관점", "ledger of costs", "network account", "변화 모형", "bargaining view", "scaffold")
_NOISE = ("{}", "{}.", "  {}", "{}!", "{} ", "{}")
_COLLAPSED_EVERY = 5
_COLLAPSED_SHARE = 0.94
_BROKEN = 0.04
_LOST = 0.01


def sample_params() -> dict[str, Any]:
    """Params with the bundled golden set, as plain data."""
    return {"cases": load_golden(GOLDEN, default_agents(), LEVELS)}


def sample_cases() -> tuple[GoldenCase, ...]:
    """The cases of the bundled golden set."""
    return validate(VsParams, sample_params(), str(GOLDEN)).cases


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """Write outputs for the bundled golden set into ``folder``, and ask for their evaluation."""
    cases = sample_cases()
    path = folder / "outputs.jsonl"
    with path.open("wb") as stream:
        write_outputs(stream, cases, repeats=max(1, round(records / len(cases))), seed=seed)
    return Request(inputs=[str(GOLDEN)], params={}, options={"outputs": [str(path)]})


def write_outputs(stream: BinaryIO, golden: Sequence[GoldenCase], repeats: int, seed: int, planned: int = 0) -> None:
    """Write a line for each repeat and case to ``stream``, repeat by repeat. Every fifth case collapses.

    With ``planned`` calls for each case, the lines are like those of a sweep that could stop.
    """
    level_of = {agent.id: agent.level for agent in default_agents()}
    levels = {level.name: level for level in LEVELS}
    makers = [_Maker(case, levels[level_of[case.agent]], index, seed) for index, case in enumerate(golden)]
    for maker in makers:
        maker.mark = {"stop": {"rule": WHEN_DECIDED, "of": planned}} if planned else {}
    for repeat in range(repeats):
        stream.writelines(maker.line(repeat) + b"\n" for maker in makers)


class _Maker:
    """Answers of one agent to one case."""

    def __init__(self, case: GoldenCase, level: Level, index: int, seed: int) -> None:
        self._case, self._level = case, level
        self._random = random.Random(f"{seed} {case.id}")  # noqa: S311 - made-up data, and the same on every machine
        names = [f"{lens} {form}" for lens in _LENSES for form in _FORMS]
        self._options = self._random.sample(names, self._random.randint(8, 14))
        self._collapses = index % _COLLAPSED_EVERY == 0
        self._narrow = case.agent.startswith("07-")
        self._careless = 0.3 if index % 7 == 3 else 0.04
        self.mark: dict[str, Any] = {}

    def line(self, repeat: int) -> bytes:
        """The recorded line of one repeat."""
        record: dict[str, Any] = {"case": self._case.id, "repeat": repeat}
        if self._random.random() < _LOST:
            lost = self._random.choice([{"error": "timeout"}, {"output": "I cannot help."}])
            return msgspec.json.encode(record | lost | self.mark)
        record["output"] = self._output()
        return msgspec.json.encode(record | self.mark)

    def _output(self) -> dict[str, Any]:
        level = self._level
        phases = list(self._case.phases or level.phases)
        if self._random.random() < self._careless:
            phases.remove(self._random.choice(phases))
        output: dict[str, Any] = {
            "agent_id": self._case.agent,
            "vs_level": level.name,
            "execution_timestamp": f"2026-03-02T09:{self._random.randint(10, 59)}:00Z",
            "vs_metadata": self._metadata(phases),
            "content": {"summary": "여러 가능성을 비교해 하나를 골랐다.", "main_output": {}, "confidence": 0.7},
            "provenance": {
                "sources": ["field notes"],
                "reasoning_trace": ["listed what is usual", "looked away from it"],
                "assumptions": ["the setting is typical"],
            },
        }
        if level.self_critique:
            output["self_critique"] = self._critique()
        for expectation in self._case.expected:
            _meet(output, expectation)
        if self._random.random() < _BROKEN:
            self._break(output)
        return output

    def _metadata(self, phases: list[int]) -> dict[str, Any]:
        low = 0.58 if self._narrow else self._random.uniform(0.1, 0.4)
        high = 0.82 if self._narrow else self._random.uniform(0.8, 0.98)
        scores = [round(score, 2) for score in (high, self._random.uniform(0.6, 0.7), low)]
        options = [self._option() for _ in scores]
        return {
            "phase_executed": phases,
            "modal_identified": ["the usual reading", "the first idea", "the textbook case"],
            "t_scores": [
                {"option": option, "score": score, "rationale": "how often it comes to mind"}
                for option, score in zip(options, scores, strict=True)
            ],
            "final_selection": {
                "option": options[2],
                "t_score": scores[2],
                "justification": "rarely thought of, and fits",
            },
        }

    def _option(self) -> str:
        if self._collapses and self._random.random() < _COLLAPSED_SHARE:
            return self._options[0]
        return self._random.choice(_NOISE).format(self._random.choice(self._options))

    def _critique(self) -> dict[str, Any]:
        critique = {
            "strengths": ["names its limits", "draws on two fields"],
            "weaknesses": ["no data yet", "one culture only"],
            "improvement_suggestions": ["ask a second reader"],
            "alternative_perspectives": ["the view from the archive"],
        }
        if self._random.random() < self._careless:
            del critique["improvement_suggestions"], critique["strengths"]
        return critique

    def _break(self, output: dict[str, Any]) -> None:
        """Break the contract in one of several ways."""
        kind = self._random.randrange(3)
        if kind == 0:
            output["vs_metadata"]["t_scores"][1]["score"] = "0.5"
        elif kind == 1:
            del output["content"]["summary"]
        else:
            del output["vs_metadata"]["final_selection"]["option"]


def _meet(output: dict[str, Any], expectation: Expectation) -> None:
    """Write a value into ``output`` that meets the expectation."""
    main, want = output["content"]["main_output"], expectation.want
    if isinstance(want, bool | str):
        value: Any = ["as asked"] if expectation.key.startswith("has_") else want
    else:
        value = [f"item {number}" for number in range(int(want) + (expectation.op in (">", "!=")))]
    keys = {
        "critique_count": "critiques",
        "has_rebuttals": "rebuttals",
        "has_alternatives": "alternative_explanations",
    }
    if expectation.key == "modal_count":
        output["vs_metadata"]["modal_identified"] = value
    elif expectation.key != "has_self_critique":
        main[keys.get(expectation.key, expectation.key)] = value
