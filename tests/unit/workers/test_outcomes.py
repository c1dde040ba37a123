"""What a call records: text where the evaluator takes text, JSON where it needs JSON, and what the target overrides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.model.calls import Prompt
from evalq.workers.callers.outcomes import result_of
from evalq.workers.ledger.sweep_model import FORM, TEXT_FORM, Result, SweepHeader
from evalq.workers.targets import Call, Caller, load_targets

CHAT = "You can return it within 30 days."
FENCED = 'Here it is:\n```json\n{"a": 1}\n```'


def recorded(tmp_path: Path, said: str, *, takes_text: bool, output: str = "") -> Result:
    """What is recorded of an agent that says ``said``."""
    (tmp_path / "said.txt").write_text(said, encoding="utf-8")
    entry: dict[str, Any] = {"kind": "command", "argv": ["cat", "said.txt"]} | ({"output": output} if output else {})
    (tmp_path / "targets.yaml").write_text(msgspec.yaml.encode({"targets": {"t": entry}}).decode())
    named = load_targets(tmp_path / "targets.yaml")["t"]
    header = SweepHeader("r", "t", "c", 1, 1, {FORM: TEXT_FORM} if takes_text else {})

    async def called() -> Any:
        async with Caller(named) as caller:
            return await caller.call(Call("hello", takes_text=header.takes_text))

    answer = asyncio.run(called())
    return result_of(header, named, "0", 0, Prompt("c", "", "hello"), [answer])


@pytest.mark.parametrize(
    "said", [CHAT, "42", "4.20", "true", '"quoted"', "null", "[1] is a footnote", FENCED, "{not JSON"]
)
def test_text_is_an_answer_as_it_was_said(tmp_path: Path, said: str) -> None:
    output = recorded(tmp_path, said, takes_text=True).output
    assert (output.error, msgspec.json.decode(output.output), output.text) == ("", said, None)


@pytest.mark.parametrize("said", ['{"a": [1, 2.50]}', " [1, 2]\n"])
def test_an_object_or_a_list_is_kept_as_json(tmp_path: Path, said: str) -> None:
    output = recorded(tmp_path, said, takes_text=True).output
    assert (output.error, bytes(output.output), output.text) == (
        "",
        msgspec.json.format(said.strip().encode(), indent=-1),
        None,
    )


def test_an_evaluator_that_needs_json_gets_bad_output_of_prose(tmp_path: Path) -> None:
    result = recorded(tmp_path, CHAT, takes_text=False)
    assert result.kind == "bad_output"
    assert result.output.text == CHAT
    assert msgspec.json.decode(recorded(tmp_path, FENCED, takes_text=False).output.output) == {"a": 1}


@pytest.mark.parametrize("takes_text", [True, False])
def test_the_target_overrides_the_evaluator(tmp_path: Path, takes_text: bool) -> None:
    assert recorded(tmp_path, CHAT, takes_text=takes_text, output="json").kind == "bad_output"
    said = recorded(tmp_path, '{"a": 1}', takes_text=takes_text, output="text").output
    assert msgspec.json.decode(said.output) == '{"a": 1}'


@pytest.mark.parametrize("said", ["", " ", "\n\t\n", "\u00a0\u3000"])
def test_an_answer_that_says_nothing_is_none(tmp_path: Path, said: str) -> None:
    """It would pass `not-refusal`, `not-contains` and `max-length`; only a target that says so takes it as text."""
    result = recorded(tmp_path, said, takes_text=True)
    assert (result.kind, result.output.error) == ("bad_output", "bad_output: the answer is empty")
    assert recorded(tmp_path, said, takes_text=True, output="text").output.error == ""
