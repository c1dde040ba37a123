"""Texts scored by Inspect, its mock model giving them: `python inspect_contains.py TEXTS` prints how many passed."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from inspect_ai import Task, eval  # noqa: A004 - its own name
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

texts = json.loads(Path(sys.argv[1]).read_text())
outputs = [ModelOutput.from_content("mockllm/model", text) for text in texts]
for output in outputs:
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # or it loads an encoding to count them
model = get_model("mockllm/model", custom_outputs=outputs)
samples = [Sample(input="Capital?", target="Paris", id=number) for number in range(len(texts))]
task = Task(dataset=MemoryDataset(samples), solver=generate(), scorer=includes(ignore_case=False))
with tempfile.TemporaryDirectory() as logs:
    (log,) = eval(task, model=model, log_dir=logs, display="none")
    sys.stderr.write(f"passed={sum(sample.scores['includes'].value == 'C' for sample in log.samples or [])}\n")
