from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, csv_dataset
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message


@task
def shop(prompt: str = "old.md") -> Task:
    return Task(
        dataset=csv_dataset("questions.csv", FieldSpec(input="question", target="expected")),
        solver=[system_message(Path(prompt).read_text()), generate()],
        scorer=includes(),
        epochs=5,
    )
