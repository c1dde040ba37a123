import csv
from pathlib import Path

import pytest
from deepeval import assert_test
from deepeval.metrics import PatternMatchMetric
from deepeval.test_case import LLMTestCase
from openai import OpenAI

CLIENT = OpenAI()
ROWS = list(csv.DictReader(Path("questions.csv").read_text().splitlines()))


@pytest.mark.parametrize("repeat", range(5))
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["question"])
@pytest.mark.parametrize("prompt", ["old.md", "new.md"])
def test_shop(prompt: str, row: dict[str, str], repeat: int) -> None:
    messages = [
        {"role": "system", "content": Path(prompt).read_text()},
        {"role": "user", "content": row["question"]},
    ]
    reply = CLIENT.chat.completions.create(model="shop", messages=messages)
    case = LLMTestCase(input=row["question"], actual_output=reply.choices[0].message.content)
    assert_test(case, [PatternMatchMetric(pattern=f"(?s).*{row['expected']}.*")])
