"""Live calls on paper: what is asked of a target, and what was recorded of each answer.

A sweep asks every prompt a number of times. Each (case, repeat) is recorded once, as it came; `Output.line` is its line
of outputs.jsonl, from which everything after it is evaluated, now or in a replay.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Annotated, Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.left_out import LeftOut

__all__ = ["WHEN_DECIDED", "Attempt", "Output", "Prompt", "StopNote", "count_cuts"]

WHEN_DECIDED = "when-decided"
"""The rule by which a case may end before all of its calls are made: as soon as its evaluator's `stopping` says so."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Real = Annotated[float, msgspec.Meta(ge=0)]


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One case's question to an agent. Of a chat ``messages`` are there, and ``text`` is their JSON."""

    case: str
    agent: str
    text: str
    messages: tuple[dict[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of agent and text, and of whether it is a chat."""
        # The zero byte keeps agent and text apart: "a" + "bc" must not be "ab" + "c".
        told = f"{self.agent}\0{self.text}" + ("\0chat" if self.messages else "")
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call: ``kind`` of its failure ("" when it was answered); what it took and cost.

    ``reason`` is why it failed, and what of its reply was not believed or was cut out. ``cut``: how often something
    that may be secret, such as a key, was replaced by ``***`` in it.
    """

    kind: str = ""
    reason: str = ""
    status: int | None = None
    latency_seconds: _Real = 0.0
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    cost: _Real | None = None
    cut: _Count = 0


class StopNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rule by which a sweep's cases end, and how ``of`` how many planned repeats."""

    rule: str
    of: _Count


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was recorded of call ``call`` of a sweep, which is repeat ``repeat`` of ``case``.

    ``output`` is the JSON of the answer as it was written, None where there is none; ``text`` the whole answer where it
    is more than that JSON. ``error`` says why there is no output. ``config`` is the digest of the target's settings.
    """

    call: _Count
    case: str
    agent: str
    repeat: _Count
    prompt: str
    target: str
    config: str
    output: msgspec.Raw = msgspec.Raw(b"null")
    text: str | None = None
    error: str = ""
    attempts: tuple[Attempt, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it is an error: no answer that keeps the target's contract."""
        return bool(self.error)

    @property
    def cost(self) -> float:
        """The cost of all attempts, in the target's currency; 0 where it has no price."""
        return sum(attempt.cost or 0.0 for attempt in self.attempts)

    @property
    def untold(self) -> bool:
        """Whether it was answered, and nobody knows what that cost."""
        return any(not attempt.kind and attempt.cost is None for attempt in self.attempts)

    @property
    def priced(self) -> str:
        """ "told" where it was answered and the cost of all of that is known, "untold" where it is not; else empty."""
        if self.untold:
            return "untold"
        return "told" if any(attempt.cost is not None for attempt in self.attempts) else ""

    def after(self, earlier: Output) -> Output:
        """The same with the attempts of an ``earlier`` try before its own."""
        return msgspec.structs.replace(self, attempts=(*earlier.attempts, *self.attempts))

    def line(self, stop: StopNote | None = None) -> bytes:
        """Its line of outputs.jsonl, without the newline."""
        told: dict[str, Any] = {"case": self.case, "repeat": self.repeat, "agent": self.agent, "target": self.target}
        if self.failed:
            told["error"] = self.error
        else:
            told["output"] = self.output
        if self.text is not None:
            told["text"] = self.text
        if stop is not None:
            told["stop"] = stop
        return msgspec.json.encode({**told, "prompt": self.prompt, "config": self.config, "attempts": self.attempts})

    @classmethod
    def of_line(cls, data: bytes) -> Output:
        """The output that a line of outputs.jsonl was written of, as call 0. Raises WireError."""
        try:
            line = msgspec.json.decode(data, type=_Line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a recorded output is not what evalq writes: {error}") from error
        told = {name: getattr(line, name) for name in _Line.__struct_fields__ if name != "stop"}
        # A line does not have the number of its call: it is of one sweep only, and any run may take the line over.
        return cls(call=0, **told)

    @classmethod
    def from_wire(cls, data: bytes) -> Output:
        """The output in ``data``. Raises WireError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a recorded output is not what evalq writes: {error}") from error


class _Cuts(msgspec.Struct):
    """Of a line of recorded outputs what was cut out of its attempts."""

    attempts: tuple[_Cut, ...] = ()
    case: str = ""


class _Cut(msgspec.Struct):
    cut: _Count = 0


def count_cuts(line: bytes, number: int, left_out: LeftOut) -> None:
    """Count in ``left_out`` what may be secret and was cut out of the reply in a ``line`` of this number: a check of
    such an answer sees ``***`` there.
    """
    if b'"cut"' not in line:
        return
    with contextlib.suppress(msgspec.DecodeError):  # a line that evalq did not write
        found = msgspec.json.decode(line, type=_Cuts)
        why = "it may be a key of the machine that called"
        count = sum(attempt.cut for attempt in found.attempts)
        left_out.add("secret in an answer", why, number, found.case, count=count, instead="***")


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of outputs.jsonl."""

    case: str
    repeat: _Count
    agent: str
    target: str
    prompt: str
    config: str
    attempts: tuple[Attempt, ...]
    output: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    text: str | None = None
    stop: StopNote | None = None
