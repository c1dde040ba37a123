"""How a suite words its cases' questions: a template around each, and a system prompt before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import Prompt
from evalq.producer.sweeps.options import SweepOptions, Wording

__all__ = ["PLACE", "prompts_of"]

PLACE = "{input}"
"""Where a case's own question stands in a template."""


def prompts_of(evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions) -> Iterator[Prompt]:
    """What a target is asked, in the wording of ``live``. Raises what the evaluator's prompts raise, and ConfigError
    for a chat that a template has no place in.
    """
    for prompt in live_calls(evaluator).prompts(request):
        yield _worded(prompt, live.wording) if live.wording is not None else prompt


def _worded(prompt: Prompt, wording: Wording) -> Prompt:
    messages = list(prompt.messages)
    if not messages:
        text = _filled(wording, prompt.text)
        if not wording.system:
            return msgspec.structs.replace(prompt, text=text)
        messages = [{"role": "user", "content": text}]
    else:
        messages = _last_filled(messages, wording, prompt.case)
    if wording.system:
        others = [message for message in messages if message.get("role") != "system"]
        messages = [{"role": "system", "content": wording.system}, *others]
    # The text as well: the digest by which answers are taken over is made of it.
    return msgspec.structs.replace(prompt, text=msgspec.json.encode(messages).decode(), messages=tuple(messages))


def _last_filled(messages: list[dict[str, Any]], wording: Wording, case: str) -> list[dict[str, Any]]:
    """A chat whose last message, its user's, is in the template."""
    last = messages[-1]
    if not wording.template:
        return messages
    if last.get("role") != "user" or not isinstance(last.get("content"), str):
        raise ConfigError(f"prompt: case {case!r} is a chat that ends with no text of its user: use system alone")
    return [*messages[:-1], {**last, "content": _filled(wording, last["content"])}]


def _filled(wording: Wording, text: str) -> str:
    # In one pass, so that what stands in a case is never taken for a place.
    return wording.template.replace(PLACE, text) if wording.template else text
