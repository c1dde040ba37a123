"""Scores of Inspect on listed answers: run in an environment of its own, `python inspect_scores.py FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval  # noqa: A004 - its own name
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import choice, includes, match, pattern
from inspect_ai.solver import generate, multiple_choice

FOLDER = Path(sys.argv[1])
ANSWERS = json.loads((FOLDER / "outputs.json").read_text())


def _record(name: str, scorer: Any, solver: Any, **more: Any) -> None:
    samples = [Sample(input=f"Question {n}?", id=n + 1, **more) for n in range(len(ANSWERS))]
    outputs = [ModelOutput.from_content("mockllm/model", answer) for answer in ANSWERS]
    for output in outputs:
        # Else Inspect counts tokens with tables that it fetches.
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    eval(
        Task(dataset=MemoryDataset(samples), solver=solver, scorer=scorer, name=name),
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(FOLDER / name),
        # The other format is written anew with every sample.
        log_format="eval",
        log_realtime=False,
        display="none",
        max_samples=1,
        max_connections=1,
    )


TEXTS = [
    *(match("begin"), match("end"), match("any"), match("exact"), match("any", ignore_case=False)),
    *(includes(), includes(ignore_case=False), pattern(r"ANSWER:\s*(\w+)"), pattern(r"(\d+)", ignore_case=False)),
]
_record("paris", TEXTS, generate(), target="Paris")
_record("number", TEXTS, generate(), target="42")
_record("several", TEXTS, generate(), target=["paris", "B", "straße"])
_record("choices", choice(), multiple_choice(), target="B", choices=["first", "second", "third", "fourth"])
