"""A conversation has a longest length: one that is longer could not be kept, and would end the run of all cases."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from evalq.evalcore.model.calls import Prompt
from evalq.workers.callers import dialogue as dialogues
from evalq.workers.callers.dialogue import Dialogue
from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets


@pytest.mark.parametrize("said", ["x" * 1000, "\x01" * 200, "é" * 500], ids=["letters", "escaped", "wide"])
def test_a_conversation_that_is_too_long_is_the_agents_failure(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialogues, "_MOST_BYTES", 5000)
    (tmp_path / "agent.py").write_text(f"def agent(call):\n    return {said!r}\n")
    (tmp_path / "targets.yaml").write_text(
        json.dumps({"targets": {"t": {"kind": "python", "function": "agent:agent"}}})
    )

    async def kept() -> bool:
        return True

    async def talk() -> tuple[int, Answered | Failure]:
        asked = Call("hello", takes_text=True, has_turns=True)
        async with Caller(load_targets(tmp_path / "targets.yaml")["t"]) as caller:
            dialogue = Dialogue(caller, asked, Prompt("c", "", "hello", turns=("more",) * 20))
            while True:
                result = dialogue.checked(await caller.call(dialogue.request))
                if isinstance(result, Failure) or not dialogue.take(result):
                    return dialogue.turns, result
                await dialogue.prepare(kept)
                assert len(dialogue.state(())) < 3 * 5000

    turns, result = asyncio.run(talk())
    assert isinstance(result, Failure)
    assert (result.kind, result.reason, result.text) == (
        "bad_output",
        "the conversation is longer than 5,000 bytes",
        "",
    )
    assert 2 <= turns <= 5
