"""What a user asks of a live sweep, apart from the evaluator's own request; and the words around each question."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, live_calls
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.model.calls import Prompt


class Wording(msgspec.Struct, frozen=True):
    """The words around each case's question, which stands at ``{input}`` of ``template`` (the question alone where that
    is empty), and the ``system`` prompt before it, in place of one that a chat has.
    """

    template: str = ""
    system: str = ""


class SweepOptions(msgspec.Struct, frozen=True):
    """What a user asks of a live sweep; budgets of 0 are none.

    ``reuse`` names folders of runs whose outputs are taken where they are of the same case, prompt, repeat and
    settings of the target. A sweep that ``extends`` a run takes all that this one recorded, failures too, and calls
    only a target whose settings have the digest ``config`` that they had then. ``keep_prompts`` says whether the
    finished run's folder keeps the prompts, for pages that show them.
    """

    target: str
    repeat: int = 1
    stop: str = ""
    max_calls: int = 0
    max_cost: float = 0.0
    cache: str = ""
    reuse: tuple[str, ...] = ()
    extends: str = ""
    config: str = ""
    wording: Wording | None = None
    keep_prompts: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError for a budget that nothing would ever reach, or that is spent before it begins."""
        for name, budget in (("max_calls", self.max_calls), ("max_cost", self.max_cost)):
            if not (isfinite(budget) and budget >= 0):
                raise UsageError(f"{name}={budget}: not a budget; give a number above 0, or 0 for none")

    @property
    def larger(self) -> str:
        """The option that a command has to name to give it a larger budget."""
        return "--max-calls N" if self.max_calls else "--max-cost X"

    def asking(self, target: str, repeat: int) -> SweepOptions:
        """To ask ``target`` so often by the same stop rule, in the same words, and to take nothing from anywhere."""
        return SweepOptions(target, repeat, self.stop, wording=self.wording, keep_prompts=self.keep_prompts)


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
