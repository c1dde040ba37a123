"""Calls of a live sweep: prompts, recorded outputs and their cost, the lineage of outputs, and vectors of texts.

A sweep asks every prompt a number of times, and records each (case, repeat) once, as it came. `Output.line` is its line
of outputs.jsonl. evalq evaluates from that line, now and in a replay.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from operator import mul
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.state import LeftOut

if TYPE_CHECKING:
    from numpy.typing import NDArray


WHEN_DECIDED = "when-decided"
"""The rule that ends a case before all of its calls are made, as soon as its evaluator's `stopping` says so."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
_Real = Annotated[float, msgspec.Meta(ge=0)]


STOP = "###STOP###"
"""The text by which a simulated user ends a conversation, unless the case names another one."""
BY_USER = "user"
"""Who made an attempt that was a call of the simulated user, and not of the agent."""


class SimulatedUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whom a case's simulated user plays and what for, the text that ends the conversation, and how often it speaks.

    An input that ends with the user counts as the first time.
    """

    persona: str = ""
    goal: str = ""
    stop: str = STOP
    max_turns: int = 10


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One case's question to an agent. A chat has ``messages``, and ``text`` is their JSON.

    ``turns`` are what the user says after each answer. ``tool_results`` are the case's answers to calls of tools.
    ``user`` is in place of turns; a ``text`` that is empty then leaves the first word to it.
    """

    case: str
    agent: str
    text: str
    messages: tuple[dict[str, Any], ...] = ()
    turns: tuple[str, ...] = ()
    tool_results: tuple[dict[str, Any], ...] = ()
    user: SimulatedUser | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of agent and text, of whether it is a chat, and of what else decides how it goes on."""
        # The zero byte keeps agent and text apart: "a" + "bc" must not be "ab" + "c".
        text = f"{self.agent}\0{self.text}" + ("\0chat" if self.messages else "")
        if self.turns or self.tool_results:
            text += f"\0{canonical_json([list(self.turns), list(self.tool_results)]).decode()}"
        if self.user is not None:
            text += f"\0{canonical_json(msgspec.structs.asdict(self.user)).decode()}"
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Tokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The tokens of one call or answer; None where nobody counted them.

    ``input`` counts all input tokens: those read from a cache (``cached_input``) and those written to one too, for five
    minutes (``cache_write``) or for an hour (``cache_write_1h``). ``output`` counts ``reasoning`` tokens, too.
    """

    input: _Count | None = None
    cached_input: _Count | None = None
    cache_write: _Count | None = None
    cache_write_1h: _Count | None = None
    output: _Count | None = None
    reasoning: _Count | None = None

    @property
    def of_cache(self) -> int | None:
        """Input tokens that are not billed at the price of input; None if nobody counted them."""
        known = [each for each in (self.cached_input, self.cache_write, self.cache_write_1h) if each is not None]
        return sum(known) if known else None


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The model that really answered, as the reply says: its name, the fingerprint of its system, and who ran it."""

    model: str = ""
    fingerprint: str = ""
    provider: str = ""

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.model or self.fingerprint or self.provider)

    @property
    def label(self) -> str:
        """It in one line for people: "model (fingerprint), provider"."""
        named = " ".join(filter(None, (self.model, self.fingerprint and f"({self.fingerprint})")))
        return ", ".join(filter(None, (named, self.provider)))


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One call: the ``kind`` of its failure ("" if it was answered), its time, tokens and cost.

    ``reason`` says why it failed, and which parts of its reply evalq did not believe or cut out. ``cut`` is how often
    evalq replaced something that may be secret, such as a key, by ``***``. ``prompt_tokens`` count cached ones and
    ``completion_tokens`` reasoning ones, too (`Tokens`). ``by`` is `BY_USER` for a call of the simulated user.
    """

    kind: str = ""
    reason: str = ""
    status: int | None = None
    latency_seconds: _Real = 0.0
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    cost: _Real | None = None
    cut: _Count = 0
    cached_tokens: _Count | None = None
    cache_write_tokens: _Count | None = None
    cache_write_1h_tokens: _Count | None = None
    reasoning_tokens: _Count | None = None
    first_token_seconds: _Real | None = None
    served: Served = Served()
    by: str = ""

    @property
    def tokens(self) -> Tokens:
        """Its tokens."""
        return Tokens(
            self.prompt_tokens, self.cached_tokens, self.cache_write_tokens, self.cache_write_1h_tokens,
            self.completion_tokens, self.reasoning_tokens,
        )  # fmt: skip


_NOT_THERE = msgspec.Raw(b"null")


class Doings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer is beside its output, as keys of its line: the conversation, tool calls and how it ended.

    ``seconds`` are those of a conversation: of all its calls and its tools. ``user`` says who simulated the user:
    {target, config}, and {fault} if the answer is lost by it.

    ``messages``, ``tool_calls``, ``extra`` and ``user`` are JSON as it was recorded; null where there is none.
    """

    messages: msgspec.Raw = _NOT_THERE
    tool_calls: msgspec.Raw = _NOT_THERE
    turns: _Count | None = None
    finish: str | None = None
    trace: str | None = None
    extra: msgspec.Raw = _NOT_THERE
    seconds: _Real | None = None
    user: msgspec.Raw = _NOT_THERE


MOST_SERVED = 50
"""The most models that are counted by name: a reply may name another one each time."""
OTHERS = "others"


def count_served(counts: dict[str, int], attempts: Sequence[Attempt], by: str = "") -> None:
    """Count in ``counts`` the model that gave the answer of a call with these ``attempts``, if it is known; of the
    calls ``by`` the simulated user, or by the agent.
    """
    last = next((attempt for attempt in reversed(attempts) if attempt.by == by), None)
    if last is None or last.kind or not last.served:
        return
    label = last.served.label
    if label not in counts and len(counts) >= MOST_SERVED:
        label = OTHERS
    counts[label] = counts.get(label, 0) + 1


def replaced_model(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """How the models that gave the answers of two runs differ, as a sentence; empty if they do not, or if one of the
    runs names none.
    """
    if not before or not now or before.keys() == now.keys():
        return ""
    return f"Another model was served: {served_text(now)} now, {served_text(before)} before."


class UserFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who simulated the user of an answer: the ``target``, with settings of the digest ``config``.

    ``fault`` says why the answer is lost by it: the kind of its failure, or what the record says.
    """

    target: str = ""
    config: str = ""
    fault: str | bool = ""

    def label(self, served: Served) -> str:
        """It in one line for people: "target (digest), served by model"."""
        named = " ".join(filter(None, (self.target, self.config and f"({self.config})")))
        return ", served by ".join(filter(None, (named, served.label)))


def user_facts(value: Any) -> UserFacts | None:
    """What a record says of its simulated user; None if it says nothing that evalq reads."""
    try:
        facts = msgspec.convert(value, UserFacts)
    except msgspec.ValidationError:
        return None
    return facts if facts.target or facts.fault else None


def count_user(counts: dict[str, int], user: UserFacts, attempts: Sequence[Attempt]) -> None:
    """Count in ``counts`` who simulated the user of an answer with these ``attempts``."""
    served = next((each.served for each in reversed(attempts) if each.by == BY_USER and not each.kind), Served())
    label = user.label(served)
    if label and (label in counts or len(counts) < MOST_SERVED):
        counts[label] = counts.get(label, 0) + 1


def replaced_user(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """How the simulated users of two runs differ, as a sentence; empty if they do not, or if a run has none."""
    if not before or not now or before.keys() == now.keys():
        return ""
    return f"Another target simulated the user: {served_text(now)} now, {served_text(before)} before."


def served_text(counts: Mapping[str, int]) -> str:
    """The models that gave answers, the most frequent first; with several, how many answers each gave."""
    if not counts:
        return ""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) == 1:
        return ordered[0][0]
    shown = [f"{label} ({count:,} answers)" for label, count in ordered[:5]]
    return ", ".join(shown) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "")


class StopNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rule by which a sweep's cases end, and how ``of`` how many planned repeats."""

    rule: str
    of: _Count


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The record of call ``call`` of a sweep, which is repeat ``repeat`` of ``case``.

    ``output`` is the JSON of the answer as it was written, None if there is none. ``text`` is the whole answer if it is
    more than that JSON. ``error`` says why there is no output. ``config`` is the digest of the target's settings.
    ``did`` is what the answer is beside its output.
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
    did: Doings = Doings()

    @property
    def failed(self) -> bool:
        """Whether it is an error, without an answer that keeps the target's contract."""
        return bool(self.error)

    @property
    def cost(self) -> float:
        """The cost of all attempts, in the target's currency; 0 if it has no price."""
        return sum(attempt.cost or 0.0 for attempt in self.attempts)

    @property
    def answered(self) -> int:
        """How many of its attempts were answered: each call of a conversation."""
        return sum(not attempt.kind for attempt in self.attempts)

    @property
    def likely_cost(self) -> float:
        """The cost of all attempts for budgets: see `likely_cost`."""
        return likely_cost(self.attempts)

    @property
    def unpriced(self) -> bool:
        """Whether attempts were answered, and no cost of them is known."""
        return self.cost_unknown and all(attempt.kind or attempt.cost is None for attempt in self.attempts)

    @property
    def cost_unknown(self) -> bool:
        """Whether an answered attempt has no known cost."""
        return any(not attempt.kind and attempt.cost is None for attempt in self.attempts)

    @property
    def priced(self) -> str:
        """The ledger's word for the cost of answers: "told" if it is known, "untold" if not, "" without an answer."""
        if self.cost_unknown:
            return "untold"
        return "told" if any(attempt.cost is not None for attempt in self.attempts) else ""

    def after(self, earlier: Output) -> Output:
        """This output, with the attempts of an ``earlier`` one before its own."""
        return msgspec.structs.replace(self, attempts=(*earlier.attempts, *self.attempts))

    def line(self, stop: StopNote | None = None) -> bytes:
        """Its line of outputs.jsonl, without the newline."""
        line: dict[str, Any] = {"case": self.case, "repeat": self.repeat, "agent": self.agent, "target": self.target}
        if self.failed:
            line["error"] = self.error
        else:
            line["output"] = self.output
        if self.text is not None:
            line["text"] = self.text
        for name in Doings.__struct_fields__:
            if (value := getattr(self.did, name)) not in (None, _NOT_THERE):
                line[name] = value
        if stop is not None:
            line["stop"] = stop
        return msgspec.json.encode({**line, "prompt": self.prompt, "config": self.config, "attempts": self.attempts})

    @classmethod
    def of_line(cls, data: bytes) -> Output:
        """The output in a line of outputs.jsonl, as call 0. Raises WireError."""
        try:
            line = msgspec.json.decode(data, type=_RecordedLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a recorded output is not what evalq writes: {error}") from error
        did = Doings(*(getattr(line, name) for name in Doings.__struct_fields__))
        beside = ("stop", *Doings.__struct_fields__)
        fields = {name: getattr(line, name) for name in _RecordedLine.__struct_fields__ if name not in beside}
        # A line has no call number, which belongs to one sweep: any run may take the line over.
        return cls(call=0, did=did, **fields)

    @classmethod
    def from_wire(cls, data: bytes) -> Output:
        """The output in ``data``. Raises WireError."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"a recorded output is not what evalq writes: {error}") from error


class Used(NamedTuple):
    """What a case has used of its budget."""

    tries: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def wire(self) -> str:
        """It as one text, for the ledger."""
        return f"{self.tries} {self.seconds!r} {self.cost!r}"

    @classmethod
    def of(cls, text: str) -> Used:
        """It from `wire`; nothing used if the text is damaged."""
        try:
            tries, seconds, cost = text.split()
            used = cls(int(tries), float(seconds), float(cost))
        except ValueError:
            return cls()
        return used if math.isfinite(used.seconds) and math.isfinite(used.cost) else cls()


def likely_cost(attempts: Sequence[Attempt]) -> float:
    """The cost of the attempts at an answer, in which an answered one of unknown cost counts at the mean of the others.

    A server may tell the tokens of some calls of a conversation only: as if the others cost nothing, a budget would pay
    for twice as many.
    """
    known = [attempt.cost for attempt in attempts if not attempt.kind and attempt.cost is not None]
    lacking = sum(not attempt.kind and attempt.cost is None for attempt in attempts)
    mean = sum(known) / len(known) if known else 0.0
    return sum(attempt.cost or 0.0 for attempt in attempts) + lacking * mean


class _Cuts(msgspec.Struct):
    """How often something was cut out of the attempts in a line of recorded outputs."""

    attempts: tuple[_Cut, ...] = ()
    case: str = ""


class _Cut(msgspec.Struct):
    cut: _Count = 0


def count_cuts(line: bytes, number: int, left_out: LeftOut) -> None:
    """Count in ``left_out`` the possible secrets that evalq cut out of the reply in ``line`` (its ``number``).

    A check of such an answer sees ``***`` there.
    """
    if b'"cut"' not in line:
        return
    with contextlib.suppress(msgspec.DecodeError):  # a line that evalq did not write
        cuts = msgspec.json.decode(line, type=_Cuts)
        why = "it may be a key of the machine that called"
        count = sum(attempt.cut for attempt in cuts.attempts)
        left_out.add("secret in an answer", why, number, cuts.case, count=count, instead="***")


class _RecordedLine(Doings, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    """The earlier runs whose answers a run has. ``reused`` is {run: outputs taken from it}.

    ``akin`` names all runs that the answers went through. ``number`` counts the runs before it in the longest such
    line, and ``first`` is the digest of the first report in that line.
    """

    reused: dict[str, int] = {}
    akin: tuple[str, ...] = ()
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] = 1
    first: str = ""

    def sentence(self) -> str:
        """The runs whose outputs it has, for readers of its numbers."""
        outputs = " and ".join(f"{count:,} outputs of {run}" for run, count in sorted(self.reused.items()))
        return f"it has {outputs}: no fresh evidence for a gate"


class Spending:
    """A sum of costs, in which an answer of unknown cost counts at the mean of the known ones.

    Otherwise, if one answer in ten had a cost, a budget for ten calls would pay for a hundred.
    """

    def __init__(self) -> None:
        self._sum, self._priced = 0.0, 0
        self.known = self.unknown = 0
        """Answers with a known cost, which may be 0, and answers with an unknown one."""
        self.answered = 0
        """Attempts that were answered: an answer that is a conversation has several."""

    def add(self, cost: float, *, known: bool = False, unknown: bool = False, answered: int = 0) -> None:
        """Add the known ``cost`` of a call; ``known`` or ``unknown`` says whether its answer has a known cost.

        ``answered`` of its attempts were answered.
        """
        self._sum += cost
        self.answered += answered
        self.known += known
        if unknown:
            self.unknown += 1
        elif cost:
            self._priced += 1

    @property
    def total(self) -> float:
        """The cost of all calls; 0 if no cost is known."""
        return self._sum + self.unknown * self._sum / self._priced if self._priced else self._sum


# Vectors of texts as whole numbers: the same bytes on any machine, compared without rounding.

MOST_DIMENSIONS = 16_384
_COMPONENT = 127
_LARGEST_FLOAT = sys.float_info.max
"""The limit of a component: JSON may hold larger whole numbers, of which Python cannot test whether they are finite."""
_FEW_VECTORS = 64
_ROUNDING = 1e-12
"""More than the rounding error of root and quotient, so that a vector is always joined to itself."""


def pack_vector(values: Sequence[float]) -> bytes:
    """A vector as a signed byte for each component, in proportion to the largest; cosines change by about 0.002.

    Raises ValueError for a vector that is empty, too long or zero, or has a component that is not a finite number.
    """
    if not 0 < len(values) <= MOST_DIMENSIONS:
        raise ValueError(f"{len(values)} numbers; a vector has 1 to {MOST_DIMENSIONS}")
    if not all(type(value) in (int, float) and -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT for value in values):
        raise ValueError("one of its components is not a finite number")
    largest = max(map(abs, values))
    if not largest:
        raise ValueError("all of its numbers are 0")
    # Divide first: a product of large numbers would be infinite.
    return struct.pack(f"{len(values)}b", *(round(value / largest * _COMPONENT) for value in values))


def cosine(one: bytes, other: bytes) -> float:
    """The cosine of the angle between two packed vectors; 0 if their lengths differ."""
    if len(one) != len(other):
        return 0.0
    mine, its = (struct.unpack(f"{len(each)}b", each) for each in (one, other))
    dot, square, its_square = (sum(map(mul, a, b)) for a, b in ((mine, its), (mine, mine), (its, its)))
    return float(dot / math.sqrt(square * its_square))


def join_vectors(vectors: Sequence[bytes], alike: float) -> list[int]:
    """For each packed vector, the index of the first vector in its group; all have the same length.

    A group joins vectors by steps with a cosine of at least ``alike``. Products of signed bytes add up to whole
    numbers, which a double holds exactly in any order of addition. Root and quotient are rounded by IEEE 754. So the
    result is the same with any library.
    """
    import numpy as np

    many = len(vectors)
    if not many:
        return []
    # Whole numbers use no threads of a library, which pays off for few vectors; for many they are too slow.
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
    groups: list[int] = first.tolist()
    return groups
