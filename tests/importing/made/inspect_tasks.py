"""Logs of Inspect with its mock model: run in an environment of its own, `python inspect_tasks.py FOLDER`."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from inspect_ai import Task, eval  # noqa: A004 - its own name
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import choice, exact, includes, match, pattern
from inspect_ai.solver import generate, multiple_choice

FOLDER = Path(sys.argv[1])
ANSWERS = (
    "The answer is Paris.",
    "paris",
    "**Paris**!",
    "Paris, of course",
    "It is not paris-like",
    "ANSWER: Paris\nANSWER: London",
    "answer:   paris   ",
    "PARIS\u00a0",
    "\u2003 Paris .\u00a0",
    "'Paris'\n\n",
    "London",
    "",
    "ANSWER: B",
    "<b>Paris</b>",
    "Straße",
    "\x1b[31mParis\x1b[0m",
    "ANSWER:",
    "P a r i s",
    "Paris\u2028",
    "the result: 42.",
)
CHOICES = (
    "ANSWER: A",
    "ANSWER: B",
    "answer: b",
    "I think.\nANSWER: B.",
    "**ANSWER: B**",
    "ANSWER: **B**",
    "ANSWER: $B$",
    "ANSWER: (B)",
    "ANSWER: A\nANSWER: B",
    "ANSWER: B\nANSWER: A",
    "ANSWER: B because it is",
    "B",
    "",
    "ANSWER: E",
    "ANSWER: AB",
    "The final ANSWER: B, I think",
    "ANSWER : B\n\n",
    "ANSWER:\nB",
)


def _model(answers: tuple[str, ...]) -> Any:
    outputs = []
    for answer in answers:
        output = ModelOutput.from_content("mockllm/model", answer)
        output.usage = ModelUsage(input_tokens=7, output_tokens=len(answer), total_tokens=7 + len(answer))
        outputs.append(output)
    return get_model("mockllm/model", custom_outputs=outputs)


def _record(name: str, task: Task, answers: tuple[str, ...], form: str) -> None:
    logs = FOLDER / "logs"
    eval(
        task,
        model=_model(answers),
        log_dir=str(logs),
        log_format=form,
        display="none",
        max_samples=1,
        max_connections=1,
    )
    (log,) = logs.iterdir()
    if form == "json":
        data = json.loads(log.read_text())
        # What a log has most of, and nobody reads here.
        for sample in data["samples"]:
            for key in ("events", "store", "events_data"):
                sample.pop(key, None)
        data["eval"].pop("model_args", None)
        (FOLDER / f"inspect-{name}.json").write_text(json.dumps(data) + "\n")
    else:
        shutil.copy(log, FOLDER / f"inspect-{name}.eval")
    shutil.rmtree(logs)


def _samples(answers: tuple[str, ...], **more: Any) -> MemoryDataset:
    return MemoryDataset([Sample(input=f"Question {n}?", id=n, **more) for n in range(len(answers))])


_record(
    "capitals",
    Task(
        dataset=_samples(ANSWERS, target="Paris", metadata={"topic": "capitals"}),
        solver=generate(),
        scorer=[
            *(match(), match("begin"), match("any"), match("exact"), match(ignore_case=False)),
            *(includes(), includes(ignore_case=False), pattern(r"ANSWER:\s*(\w+)"), exact()),
        ],
        name="capitals",
    ),
    ANSWERS,
    "json",
)
_record(
    "epochs",
    Task(
        dataset=MemoryDataset(
            [
                Sample(input="One?", target=["Paris", "b"], id="x", metadata={"long": "y" * 200}),
                Sample(
                    input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two?"}],
                    target="42",
                    id="y",
                ),
            ]
        ),
        solver=generate(),
        scorer=[match("any"), includes(), pattern(r"(\d+)|ANSWER: (\w)"), match(numeric=True)],
        epochs=10,
        name="epochs",
    ),
    ANSWERS,
    "eval",
)
_record(
    "choices",
    Task(
        dataset=_samples(CHOICES, choices=["first", "second", "third", "fourth"], target="B"),
        solver=multiple_choice(),
        scorer=choice(),
        name="choices",
    ),
    CHOICES,
    "eval",
)
