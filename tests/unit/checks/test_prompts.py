"""What a live target is asked: text, a chat as messages, or the JSON of a mapping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks.inputs import output_line, prompts, stopping
from evalq.evalcore.model.calls import Prompt
from evalq.workers.targets.answers import Call
from evalq.workers.targets.http import fill

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def asked(folder: Path, cases: list[dict[str, Any]], **options: Any) -> Request:
    """A request about these cases."""
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    return Request([str(path)], {}, options)


def test_each_form_of_input(tmp_path: Path) -> None:
    """Text as it is, a chat as messages and their JSON, a mapping as JSON."""
    cases = [{"id": str(i), "expected": "x", "input": value} for i, value in enumerate(["Hi", CHAT, {"a": [1]}])]
    text, chat, data = prompts(asked(tmp_path, cases))
    assert text == Prompt("0", "", "Hi")
    assert (json.loads(chat.text), list(chat.messages)) == (CHAT, CHAT)
    assert (json.loads(data.text), data.messages) == ({"a": [1]}, ())
    assert chat.digest != Prompt("1", "", chat.text).digest


def test_a_chat_reaches_every_kind_of_target() -> None:
    """As messages where they are asked for; a text is one message of its user."""
    call = Call("[...]", "", "c", 3, tuple(CHAT))
    assert call.chat == CHAT
    assert {call: 1}[Call("[...]", "", "c", 3, tuple(CHAT))] == 1  # hosts of functions remember calls
    assert call.values()["messages"] == CHAT
    assert fill({"messages": "{messages}", "n": "{repeat}"}, call.fillings()) == {"messages": CHAT, "n": 3}
    plain = Call("Hi")
    assert "messages" not in plain.values()
    assert fill("{messages}", plain.fillings()) == [{"role": "user", "content": "Hi"}]


def test_what_cannot_be_asked_is_said(tmp_path: Path) -> None:
    """Cases without an input, and outputs beside a target."""
    cases = [{"id": "a", "expected": "x"}, {"id": "b", "expected": "x", "input": "q"}]
    with pytest.raises(ConfigError, match=r"these cases have no input to send to the target: a$"):
        list(prompts(asked(tmp_path, cases)))
    with pytest.raises(UsageError, match="give only one of them"):
        list(prompts(asked(tmp_path, cases, outputs=("x",))))


def test_only_thresholds_can_decide(tmp_path: Path) -> None:
    """Without any there is no rule to stop by."""
    assert stopping(asked(tmp_path, [{"id": "a", "expected": "x"}])) is None
    assert stopping(asked(tmp_path, [{"id": "a", "expected": "x", "thresholds": {"pass-rate": 0.5}}])) is not None


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("greet.3.txt", b"Hello\n", {"named": "greet.3", "output": "Hello\n"}),
        ("greet.md", "héllo".encode(), {"named": "greet", "output": "héllo"}),
        ("a.b#2.json", b'{"x": 1}', {"named": "a.b#2", "output": {"x": 1}}),
        ("x.json", b'{"case": "y", "repeat": 1, "error": "e"}', {"case": "y", "repeat": 1, "error": "e"}),
    ],
)
def test_files_of_a_folder_become_lines(name: str, data: bytes, line: dict[str, Any]) -> None:
    """An output each, with the name that says its case and repeat, or the whole line."""
    assert json.loads(output_line(name, data)) == line


def test_files_that_cannot_be_read_become_errors() -> None:
    """The message names them, with the reason."""
    assert "not JSON" in json.loads(output_line("a.json", b"{"))["error"]
    assert "utf-8" in json.loads(output_line("a.txt", b"\xff"))["error"]
