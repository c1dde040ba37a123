"""What a function returns of an agent framework: models of pydantic, dataclasses and subclasses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets

AGENT = '''
"""As frameworks define their classes."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from evalq import Answer


class AIMessage(BaseModel):
    type: Literal["ai"] = "ai"
    content: Any
    tool_calls: list[dict[str, Any]] = []
    usage_metadata: dict[str, int] = {"input_tokens": 3, "output_tokens": 1}


@dataclass
class Used:
    input_tokens: int
    output_tokens: int
    requests: int = 1


class Text(str):
    pass


class Order(BaseModel):
    id: int
    items: tuple[str, ...] = ("cup",)


class Opaque:
    pass


SAID = [{"role": "user", "content": "x"}, AIMessage(content=Text("hello"))]


def messages(call):
    return Answer(messages=SAID)


def usage(call):
    return Answer(output=Text("hello"), messages=SAID, usage=Used(5, 2))


def structured(call):
    return Answer(output=Order(id=7), messages=SAID)


def model(call):
    return Order(id=7)


def stream(call):
    yield from SAID


def raw(call):
    return {"messages": SAID}


def raw_message(call):
    return SAID[1]


def opaque(call):
    return Answer(output=Opaque())
'''


def ask(folder: Path, function: str) -> Answered | Failure:
    (folder / "agent.py").write_text(AGENT)
    entry = {"kind": "python", "function": f"agent:{function}", "retries": {}}
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))

    async def once() -> Answered | Failure:
        async with Caller(load_targets(folder / "targets.yaml")["t"]) as caller:
            return await caller.call(Call("x", takes_text=True))

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("function", "text", "tokens"),
    [
        ("messages", "hello", (3, 1)),
        ("usage", "hello", (5, 2)),
        ("structured", {"id": 7, "items": ["cup"]}, (3, 1)),
        ("model", {"id": 7, "items": ["cup"]}, (None, None)),
        ("stream", "hello", (3, 1)),
    ],
)
def test_objects_of_a_framework_are_an_answer(
    tmp_path: Path, function: str, text: Any, tokens: tuple[Any, Any]
) -> None:
    result = ask(tmp_path, function)
    assert isinstance(result, Answered), result
    assert (result.text if isinstance(text, str) else json.loads(result.text)) == text
    assert (result.prompt_tokens, result.completion_tokens) == tokens


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raw", "return messages of a framework as evalq.Answer(messages=[...])"),
        ("raw_message", "evalq.Answer(messages=[...])"),
        ("opaque", "an answer cannot hold Opaque: give it as text or plain data"),
    ],
)
def test_what_is_no_answer_says_what_to_return(tmp_path: Path, function: str, said: str) -> None:
    """Messages as data would be one text, in which checks would find what the user said."""
    result = ask(tmp_path, function)
    assert isinstance(result, Failure)
    assert said in result.reason
