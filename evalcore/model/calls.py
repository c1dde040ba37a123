"""Calls of a live sweep: prompts, recorded outputs and their cost, whose outputs a run has, and vectors of texts.

A sweep asks every prompt a number of times. Each (case, repeat) is recorded once, as it came; `Output.line` is its line
of outputs.jsonl, from which everything after it is evaluated, now or in a replay.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
import sys
from collections.abc import Sequence
from operator import mul
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.state import LeftOut

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
            line = msgspec.json.decode(data, type=_RecordedLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a recorded output is not what evalq writes: {error}") from error
        told = {name: getattr(line, name) for name in _RecordedLine.__struct_fields__ if name != "stop"}
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


class _RecordedLine(msgspec.Struct, forbid_unknown_fields=True):
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


class Lineage(msgspec.Struct, frozen=True):
    """Whose answers a run has besides its own. ``reused`` is {run: outputs taken from it}.

    ``akin`` names all runs that gave any of them, those that gave them to these, too. ``number`` counts the runs before
    it in the longest such line, and ``first`` is the digest of the report that this line began with.
    """

    reused: dict[str, int] = {}
    akin: tuple[str, ...] = ()
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] = 1
    first: str = ""

    def told(self) -> str:
        """Whose outputs a run has, in words for whoever reads its numbers."""
        given = " and ".join(f"{count:,} outputs of {run}" for run, count in sorted(self.reused.items()))
        return f"it has {given}: no fresh evidence for a gate"


class Spending:
    """A sum of costs. An answer of unknown cost counts at the mean of those that are known: left out, a budget of ten
    calls would pay for a hundred where one answer in ten tells its tokens.
    """

    def __init__(self) -> None:
        self._known, self._priced = 0.0, 0
        self.told = self.untold = 0
        """Answers whose cost is known, nothing too, and those whose cost is not."""

    def add(self, cost: float, *, told: bool = False, untold: bool = False) -> None:
        """The known ``cost`` of a call, and whether that of its answer is known, or is not."""
        self._known += cost
        self.told += told
        if untold:
            self.untold += 1
        elif cost:
            self._priced += 1

    @property
    def total(self) -> float:
        """Of all of them; nothing where no cost is known."""
        return self._known + self.untold * self._known / self._priced if self._priced else self._known


# Vectors of texts are kept as whole numbers: the same bytes on any machine, compared without rounding.

MOST_DIMENSIONS = 16_384
_COMPONENT = 127
_LARGEST_FLOAT = sys.float_info.max
"""Compared with it: a whole number that is larger, as JSON may have, cannot be asked whether it is finite."""
_FEW_VECTORS = 64
_ROUNDING = 1e-12
"""More than root and quotient may be off, so that a vector is always as alike to itself as can be."""


def pack_vector(values: Sequence[float]) -> bytes:
    """A vector as a signed byte for each component, in proportion to the largest: cosines change by some 0.002.

    Raises ValueError for one that is empty, too long, zero, or has what is no finite number.
    """
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise ValueError(f"{len(values)} numbers where 1 to {MOST_DIMENSIONS} are wanted")
    if not all(type(value) in (int, float) and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT for value in values):
        raise ValueError("something in it is no finite number")
    largest = max(map(abs, values))
    if not largest:
        raise ValueError("all of its numbers are 0")
    # Divided first: a product of large numbers would be infinite.
    return struct.pack(f"{len(values)}b", *(round(value / largest * _COMPONENT) for value in values))


def cosine(one: bytes, other: bytes) -> float:
    """Of the angle between two packed vectors of one length; 0 of different lengths."""
    if len(one) != len(other):
        return 0.0
    mine, its = (struct.unpack(f"{len(each)}b", each) for each in (one, other))
    dot, square, its_square = (sum(map(mul, a, b)) for a, b in ((mine, its), (mine, mine), (its, its)))
    return float(dot / math.sqrt(square * its_square))


def join_vectors(vectors: Sequence[bytes], alike: float) -> list[int]:
    """For each packed vector the first of those that it is joined to by steps between vectors with a cosine of
    ``alike`` at least; all have one length.

    Products of signed bytes add up to whole numbers that a double holds exactly, in whatever order a machine adds them;
    root and quotient are then rounded as IEEE 754 says. So no library decides.
    """
    import numpy as np

    many = len(vectors)
    if not many:
        return []
    # Whole numbers take no threads of a library, which cost more than a few products; of many, they are too slow.
    kind = np.int32 if many <= _FEW_VECTORS else np.float64
    whole: NDArray[Any] = np.frombuffer(b"".join(vectors), np.int8).reshape(many, -1).astype(kind)
    products = (whole @ whole.T).astype(np.float64)
    lengths = np.sqrt(products.diagonal())
    near = products / (lengths[:, None] * lengths) >= alike - _ROUNDING
    first = np.full(many, -1)
    for start in range(many):
        waiting = [start] if first[start] < 0 else []
        while waiting:
            first[waiting] = start
            waiting = np.flatnonzero(near[waiting].any(axis=0) & (first < 0)).tolist()
    found: list[int] = first.tolist()
    return found
