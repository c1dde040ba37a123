"""One recorded output for checks: its text, JSON and tool calls, its usage, and the replies of judges."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.model.calls import BY_USER, Attempt
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.answers import (
    BadAnswer,
    calls_of,
    conversation_text,
    last_text,
    read_messages,
    read_tokens,
    text_of,
)
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.records.prompts import reply_of, whole_reply
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, calls_in

__all__ = [
    "LONGEST",
    "NOTHING_USED",
    "CheckedAnswer",
    "Form",
    "InvalidField",
    "ToolCall",
    "Uncomputable",
    "Unfit",
    "Unreadable",
    "Usage",
    "Vote",
    "first_votes",
    "lacks_output",
    "output_of",
    "plain",
    "text_digest",
    "usage_of",
    "votes_of",
    "why_no_output",
]

# Recorded judgements: the ``judgements`` of a line.

# The error that a sweep records for a reply that it cannot use.
_BAD = "bad_output"
LONGEST = 1_000_000
"""Characters of a judged answer: no model reads more at once, and each is in memory during the call."""
_MOST = 10_000
"""Judgements of one output: a line with more is damaged or malicious."""

_Text = Annotated[str, msgspec.Meta(max_length=1000)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class Unreadable(ValueError):
    """A judge's reply has no verdict; the message says why."""


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of ``judge``, with the settings of digest ``config``.

    ``check`` is the key of the question, ``about`` the digest of the judged text, ``order`` says which of two texts
    came first (0: the answer), ``vote`` numbers the calls. ``prompt`` is the digest of the whole prompt, ``template``
    that of the words around the texts, ``marker`` the one that the reply must have. ``output`` is the JSON of the
    reply, unless ``error`` says why there is none; ``text`` is the whole reply if that is more.
    """

    check: _Text
    about: _Text
    judge: _Text
    config: _Text = ""
    prompt: _Text = ""
    template: _Text = ""
    marker: _Text = ""
    order: _Count = 0
    vote: _Count = 0
    output: Any = msgspec.UNSET
    text: str | None = None
    error: str | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether there is no reply at all: a reply without JSON is unreadable, not failed."""
        return self.output is msgspec.UNSET and not (self.error or "").startswith(_BAD)

    def reply(self) -> dict[str, Any]:
        """The JSON object in its reply that has the marker of its prompt. Raises Unreadable."""
        reply = whole_reply(self.output, self.text, self.error or "")
        if reply is None:
            raise Unreadable(self.error or "no reply is recorded")
        try:
            return reply_of(reply, self.marker)
        except NoJson as error:
            raise Unreadable(str(error)) from None

    @property
    def reason(self) -> str:
        """The judge's reason; empty if it gave none."""
        try:
            reason = self.reply().get("reason")
        except Unreadable:
            return ""
        return reason if isinstance(reason, str) else ""

    def read(self, parse: Callable[[dict[str, Any]], Any]) -> Any:
        """The result of ``parse`` on the reply. Raises Unreadable."""
        return parse(self.reply())


def votes_of(listed: Any, unclear: Collection[int] = ()) -> tuple[Vote, ...]:
    """The judgements of a line; those numbered in ``unclear`` repeat a key, so that they are unreadable.

    Raises ValueError with the path to the fault.
    """
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise ValueError(f"judgements: {kind_of(listed)} where a list is wanted")
    if len(listed) > _MOST:
        raise ValueError(f"judgements: {len(listed)} of them; {_MOST} are the most")
    try:
        votes = msgspec.convert(listed, tuple[Vote, ...], strict=True)
    except msgspec.ValidationError as error:
        message, _, path = str(error).replace("`", "").partition(" - at $")
        raise ValueError(f"judgements{path}: {message[:1].lower()}{message[1:]}") from None
    # A damaged judgement is an unreadable vote, and does not affect the others.
    return (
        tuple(_unreadable(vote) if index in unclear else vote for index, vote in enumerate(votes)) if unclear else votes
    )


def _unreadable(vote: Vote) -> Vote:
    return msgspec.structs.replace(vote, output=msgspec.UNSET, text=None, error=f"{_BAD}: a key stands in it twice")


def text_digest(text: str) -> str:
    """The digest of a judged text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def first_votes(votes: Sequence[Vote], key: str, digest: str, judge: str) -> dict[tuple[int, int], Vote]:
    """{(order, vote): judgement} for ``key`` about the text with ``digest``, by ``judge`` unless that is empty.

    Of several, the first one counts.
    """
    first: dict[tuple[int, int], Vote] = {}
    for vote in votes:
        if vote.check == key and vote.about == digest and judge in ("", vote.judge):
            first.setdefault((vote.order, vote.vote), vote)
    return first


_ADDED = frozenset(("judgements", "labels", "embedding", "attempts", "stop", "prompt", "target", "config"))
"""Keys that evalq adds to a record, or that say how it was called."""
_EVALQ_CALLED = frozenset(("messages", "attempts", "prompt", "config", "turns"))
"""Keys of each line of a conversation that evalq held."""
_NOT_PARSED = object()


class Uncomputable(ValueError):
    """A check cannot be computed, since the record lacks its data; the message says which."""


class Unfit(ValueError):
    """An answer has nothing for a check, or too much: it fails the check, even if negated."""


class Usage(NamedTuple):
    """The seconds, cost and tokens of an output, as far as its record has them; tokens of a cache count as prompt."""

    latency: float | None = None
    cost: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_token: float | None = None

    @property
    def tokens(self) -> int | None:
        """Prompt and completion together; None if neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


NOTHING_USED = Usage()
Form = Literal["none", "nfc", "nfkc"]
"""A normal form of Unicode (UAX 15)."""


def plain(text: str, ignore_case: bool, form: Form) -> str:
    """The text to compare: perhaps without case, and in a normal form of Unicode."""
    if form == "none":
        return text.casefold() if ignore_case else text
    named: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    text = unicodedata.normalize(named, text)
    # Case folding may leave a text that is not in normal form.
    return unicodedata.normalize(named, text.casefold()) if ignore_case else text


class CheckedAnswer:
    """``output`` is any JSON value, ``text`` the whole answer if the record has both.

    ``tool_calls`` is the record's list, or None; ``judgements`` are the replies of judges; ``record`` is its line.
    ``may_be_silent``: null or a text that is empty beside tool calls is an empty text, as in a part of an answer.
    """

    __slots__ = (
        *("_data", "_encoded", "_folded", "_json", "_plain", "_text", "_tool_calls"),
        *("record", "judgements", "may_be_silent", "output", "usage"),
    )

    def __init__(
        self,
        output: Any,
        text: str | None = None,
        usage: Usage | None = None,
        tool_calls: Any = None,
        judgements: Sequence[Vote] = (),
        record: Mapping[str, Any] | None = None,
    ) -> None:
        self.output = output
        self.record = record or {}
        self.judgements = judgements
        self.usage = usage or NOTHING_USED
        self._text = text
        self._data = text is None and (output is None or isinstance(output, list | dict))
        self._plain: dict[tuple[bool, Form], str] = {}
        self._folded: str | None = None
        self._encoded: bytes | None = None
        self._json: Any = _NOT_PARSED
        self._tool_calls = tool_calls
        self.may_be_silent = False

    @property
    def text(self) -> str:
        """The answer as text: a text as it is, null as empty, other values as JSON."""
        if self._text is None:
            if self.output is None:
                self._text = ""
            else:
                self._text = self.output if isinstance(self.output, str) else msgspec.json.encode(self.output).decode()
        return self._text

    @property
    def said(self) -> str:
        """The text of the answer. Raises Unfit if it has none: null, or nothing but tool calls."""
        if self._blank:
            self._require_words()
        return self.text

    @property
    def has_text(self) -> bool:
        """Whether the answer has a text, perhaps an empty one, or data."""
        try:
            if self._blank:
                self._require_words()
        except Unfit:
            return False
        return True

    @property
    def _blank(self) -> bool:
        """Whether the answer is null, or a text of white space."""
        text = self.output if self._text is None else self._text
        return text is None or (isinstance(text, str) and (not text or text.isspace()))

    def _require_words(self) -> None:
        """Raise Unfit for an answer without a text. A check that only forbids a text would pass every such answer."""
        if self._only_acts():
            raise Unfit("no text: the answer has nothing but tool calls")
        if self.output is None and not self._text and not self.may_be_silent:
            raise Unfit("null, not a text")

    def _only_acts(self) -> bool:
        """Whether the answer calls tools and says nothing."""
        if self.may_be_silent or not self._blank:
            return False
        if self._tool_calls or self.finish == "tool_calls":
            return True
        try:
            return bool(self.messages and self.tool_calls)
        except Uncomputable:
            return False

    @property
    def prose(self) -> str:
        """The text of an answer in prose. Raises Unfit for null, a list or a mapping without a text."""
        if self._data:
            raise Unfit(f"{kind_of(self.output)}, not a text: `at` names the part of it that is one")
        return self.said

    @property
    def folded(self) -> str:
        """The text without case."""
        if self._folded is None:
            self._folded = self.said.casefold()
        return self._folded

    def plain(self, ignore_case: bool, form: Form) -> str:
        """The text to compare: perhaps without case, and in a normal form of Unicode."""
        if form == "none":
            return self.folded if ignore_case else self.said
        if (ignore_case, form) not in self._plain:
            self._plain[ignore_case, form] = plain(self.said, ignore_case, form)
        return self._plain[ignore_case, form]

    @property
    def encoded(self) -> bytes:
        """The text in UTF-8."""
        if self._encoded is None:
            # JSON allows half a surrogate pair, which UTF-8 cannot encode; no answer may end a run.
            self._encoded = self.said.encode("utf-8", "surrogatepass")
        return self._encoded

    @property
    def json(self) -> Any:
        """The value, or the JSON of a text: all of it, or its one fenced block.

        Raises NoJson, and Unfit for an answer with nothing but tool calls.
        """
        if self._json is _NOT_PARSED:
            if self._only_acts():
                self._require_words()
            try:
                self._json = extract(self.output) if isinstance(self.output, str) else self.output
            except NoJson as error:
                # Cached like a value: several checks need it, and searching for a fenced block reads all of the text.
                self._json = error
        if isinstance(self._json, NoJson):
            raise self._json
        return self._json

    def _shown_json(self) -> Any:
        """The JSON of the answer; of a text without any, the text."""
        try:
            return self.json
        except (NoJson, Unfit):
            return self.output

    def part(self, value: Any) -> CheckedAnswer:
        """A part of the answer, as an answer."""
        # Tool calls and judgements are about the whole, so parts share them.
        part = CheckedAnswer(value, None, self.usage, self._tool_calls, self.judgements, self.record)
        part.may_be_silent = True
        return part

    def conversation(self) -> CheckedAnswer:
        """The whole conversation as a text for a judge. Raises Uncomputable if the record has none."""
        messages = self.messages
        if not messages:
            raise Uncomputable("the record has no messages: `of: conversation` needs the conversation")
        try:
            return self.part(conversation_text(messages))
        except NoCall as error:
            raise Uncomputable(f"messages: {error}") from None

    def said_by_user(self) -> CheckedAnswer:
        """All that the user said, a line each. Raises Uncomputable if the record has no messages."""
        messages = self.messages
        if not messages:
            raise Uncomputable("the record has no messages: `about: user` needs the conversation")
        return self.part("\n".join(text_of(each.get("content")) for each in messages if each["role"] == "user"))

    def as_record(self) -> CheckedAnswer:
        """The record as a text for a program that looks at what is left, without what evalq adds to it."""
        kept = {key: value for key, value in self.record.items() if key not in _ADDED}
        return self.part(msgspec.json.encode({**kept, "output": self.output}, order="sorted").decode())

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order. Raises Uncomputable if the record has no list of them."""
        if self._tool_calls is None and self.record.keys() >= _EVALQ_CALLED:
            # What evalq recorded of an answer has its tool calls if the agent said which it made.
            raise Uncomputable("the agent did not say which tools it called: its answers need tool_calls")
        if self._tool_calls is None and (messages := self.messages):
            try:
                return calls_of(messages)
            except NoCall as error:
                raise Uncomputable(f"messages: {error}") from None
        try:
            calls = calls_in(self._shown_json() if self._tool_calls is None else {"tool_calls": self._tool_calls})
        except NoCall as error:
            raise Uncomputable(str(error)) from None
        if calls is None:
            raise Uncomputable("the record says nothing of tool calls: its line, or its output, needs tool_calls")
        return calls

    @property
    def messages(self) -> tuple[dict[str, Any], ...]:
        """The conversation; empty if the record has none. Raises Uncomputable for one that cannot be read."""
        try:
            return read_messages(self.record.get("messages"))
        except BadAnswer as error:
            raise Uncomputable(str(error)) from None

    @property
    def finish(self) -> str | None:
        """Why the answer ended; None if the record does not say it."""
        finish = self.record.get("finish")
        return finish if isinstance(finish, str) else None

    @property
    def turns(self) -> int | None:
        """How many turns the answer took: as recorded, or else the messages of the assistant; None if unknown."""
        turns = self.record.get("turns")
        if type(turns) is int and turns >= 0:
            return turns
        return sum(each["role"] == "assistant" for each in self.messages) or None


# Reading the output and the usage from a line.

_TOKENS = ("prompt_tokens", "completion_tokens")


class InvalidField(ValueError):
    """A key of the line has a value that is not valid."""


def _has_error(value: Any) -> bool:
    """Whether ``error`` is an error: many recorders write null, false or an empty text with each answer."""
    return bool(value.strip() if isinstance(value, str) else value)


def lacks_output(record: dict[str, Any]) -> bool:
    """Whether the line has no output, or an error."""
    return _has_error(record.get("error")) or ("output" not in record and not record.get("messages"))


def output_of(record: dict[str, Any]) -> Any:
    """The output of a line that has one: as it is recorded, or else the last text of its messages.

    Raises InvalidField.
    """
    if "output" in record:
        return record["output"]
    try:
        return last_text(read_messages(record["messages"]))
    except BadAnswer as error:
        raise InvalidField(str(error)) from None


def why_no_output(record: dict[str, Any]) -> str:
    """Why a line has no output, by its ``error`` if it has one."""
    error = record.get("error")
    if not _has_error(error):
        return "output: missing"
    if isinstance(error, str):
        return f"no output: {shorten(error, 200)}"
    return f"error: {kind_of(error)} where a string is wanted"


_USAGE_KEYS = frozenset(("cost", "latency_seconds", "seconds", "first_token_seconds", "usage", *_TOKENS, "attempts"))


def usage_of(record: dict[str, Any]) -> Usage:
    """The usage of the output: by the keys of the line, or else by its attempts. Raises InvalidField."""
    if _USAGE_KEYS.isdisjoint(record):
        return NOTHING_USED  # most recorded outputs
    cost, latency, first = (_amount(record, key, "") for key in ("cost", "latency_seconds", "first_token_seconds"))
    latency = _amount(record, "seconds", "") if latency is None else latency
    prompt, completion = _tokens_of(record)
    attempts = record.get("attempts")
    if not attempts:
        return Usage(latency, cost, prompt, completion, first)
    if not isinstance(attempts, list):
        raise InvalidField(f"attempts: {kind_of(attempts)} where a list is wanted")
    costs, prompts, completions, paid = [], [], [], []
    latest_latency = latest_first = None
    for index, attempt in enumerate(attempts):
        where = f"attempts[{index}]"
        if not isinstance(attempt, dict):
            raise InvalidField(f"{where}: {kind_of(attempt)} where an object is wanted")
        if attempt.get("by") == BY_USER:
            continue  # what the simulated user takes is none of the agent's
        # The latency of the last attempt: those before it gave no output.
        latest_latency = _amount(attempt, "latency_seconds", f"{where}.")
        latest_first = _amount(attempt, "first_token_seconds", f"{where}.")
        # The cost of all attempts: failed ones are paid, too.
        costs.append(_amount(attempt, "cost", f"{where}."))
        prompts.append(_count(attempt, "prompt_tokens", f"{where}."))
        completions.append(_count(attempt, "completion_tokens", f"{where}."))
        paid.append(not attempt.get("kind"))
    return Usage(
        latency if latency is not None else latest_latency,
        cost if cost is not None else _sum(costs, paid),
        prompt if prompt is not None else _sum(prompts, paid),
        completion if completion is not None else _sum(completions, paid),
        first if first is not None else latest_first,
    )


def _tokens_of(record: dict[str, Any]) -> tuple[int | None, int | None]:
    """Prompt and completion tokens of a line: in ``usage``, or under their older names. Raises InvalidField."""
    if "usage" not in record:
        prompt, completion = (_count(record, key, "") for key in _TOKENS)
        return prompt, completion
    try:
        tokens = read_tokens(record)
    except BadAnswer as error:
        raise InvalidField(str(error)) from None
    return tokens.input, tokens.output


def _sum(values: list[Any], paid: list[bool]) -> Any:
    """The sum of the known values; None without any, and if one of the answered attempts has none.

    The sum of some calls of a conversation is less than what it took, and would pass every limit.
    """
    known = [value for value in values if value is not None]
    lacks = any(value is None and answered for value, answered in zip(values, paid, strict=True))
    return sum(known) if known and not lacks else None


def _amount(holder: dict[str, Any], key: str, where: str) -> float | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e15 or not math.isfinite(value):
        raise InvalidField(f"{where}{key}: {found(holder, key)} where a number from 0 is wanted")
    return float(value)


def _count(holder: dict[str, Any], key: str, where: str) -> int | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1e15:
        raise InvalidField(f"{where}{key}: {found(holder, key)} where a whole number from 0 is wanted")
    return value
