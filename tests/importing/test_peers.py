"""What the tools themselves said of 1,000 answers, beside what imported checks say now: from the recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest
from tests.importing.environments import INSPECT, LM_EVAL, PROMPTFOO
from tests.importing.peer_outputs import COUNT, outputs
from tests.importing.peers import PAGE, RECORD, assertions, compared, digest_of, page

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())
LEAST = {"promptfoo": 80_000, "inspect": 25_000, "lm-eval": 10_000, "deepeval": 1_900}
"""So many verdicts at least have to be compared."""


def test_the_recording_is_of_these_answers_and_versions() -> None:
    """Else: make peers."""
    answers = outputs()
    assert len(set(answers)) == COUNT == 1000
    assert RECORDED["answers_sha256"] == digest_of(answers)
    versions = {tool: said["version"] for tool, said in RECORDED["tools"].items()}
    assert {**versions, "deepeval": ""} == {
        "promptfoo": PROMPTFOO,
        "inspect": INSPECT,
        "lm-eval": LM_EVAL,
        "deepeval": "",
    }


@pytest.mark.parametrize("tool", LEAST)
def test_imported_checks_have_the_verdicts_of_the_tool(tool: str) -> None:
    """On every answer, but for differences that have a reason; four of five checks pass some answers and fail some."""
    total = telling = 0
    for recorded in RECORDED["tools"][tool]["checks"]:
        row = compared(tool, recorded, outputs())
        total += row.compared
        assert [answer for answer, why in row.other if not why] == [], recorded
        telling += {"0", "1"} <= set(recorded["said"])
    assert total >= LEAST[tool]
    assert telling >= 0.8 * len(RECORDED["tools"][tool]["checks"])


def test_the_checks_are_those_that_an_import_makes_today(tmp_path: Path) -> None:
    """promptfoo's, from a configuration."""
    config = {"prompts": ["?"], "tests": [{"assert": assertions()}]}
    (tmp_path / "promptfooconfig.json").write_text(json.dumps(config))
    (case,) = sources.read("promptfoo", tmp_path / "promptfooconfig.json", ImportRequest()).cases
    recorded = {each["what"]: each["check"] for each in RECORDED["tools"]["promptfoo"]["checks"]}
    assert {check["name"]: check for check in case["checks"]} == recorded


def test_the_page_shows_what_is_recorded() -> None:
    """`python -m tests.importing.peers page` makes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page(RECORDED, outputs())
