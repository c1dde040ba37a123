"""One recorded output as checks see it: its text, JSON and tool calls, its cost, and what judges replied about it."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.model.calls import Attempt
from evalq.evalcore.naming import found, kind_of, shorten
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.records.prompts import reply_of, whole_reply
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, calls_in

__all__ = [
    "LONGEST",
    "Answer",
    "Form",
    "Misplaced",
    "ToolCall",
    "Uncomputable",
    "Unfit",
    "Unreadable",
    "Usage",
    "Vote",
    "about",
    "first_votes",
    "lacks_output",
    "plain",
    "usage_of",
    "votes_of",
    "why_no_output",
]

# One recorded judgement: what a judge replied when it was asked about an answer, as it stands in a line's
# ``judgements``.

# What a sweep records of a reply that came and cannot be used.
_BAD = "bad_output"
LONGEST = 1_000_000
"""Characters of an answer that is judged: no model reads more at once, and each is held in memory while it is asked."""
_MOST = 10_000
"""Judgements of one output; what has more is damaged, or made to take long."""

_Text = Annotated[str, msgspec.Meta(max_length=1000)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class Unreadable(ValueError):
    """A judge's reply that is no verdict; the message says why."""


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of ``judge``, asked with the settings of digest ``config``.

    ``check`` is the key of what it was asked, ``about`` the digest of the text that it judged, ``order`` which of two
    texts it saw first (0: the answer), ``vote`` the how manieth time it was asked. ``prompt`` is the digest of all that
    it was sent, ``template`` that of the words around the texts, ``marker`` the one that its reply has to have.
    ``output`` is the JSON of its reply, where ``error`` does not say why there is none, and ``text`` all of its reply
    where that is more; ``attempts`` what that took.
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
        """Whether there is no reply at all: a reply that is no JSON is one that cannot be read."""
        return self.output is msgspec.UNSET and not (self.error or "").startswith(_BAD)

    def reply(self) -> dict[str, Any]:
        """The JSON object in its reply that has the marker of its prompt. Raises Unreadable."""
        said = whole_reply(self.output, self.text, self.error or "")
        if said is None:
            raise Unreadable(self.error or "no reply is recorded")
        try:
            return reply_of(said, self.marker)
        except NoJson as error:
            raise Unreadable(str(error)) from None

    @property
    def reason(self) -> str:
        """What it says for its verdict; empty where it says nothing."""
        try:
            reason = self.reply().get("reason")
        except Unreadable:
            return ""
        return reason if isinstance(reason, str) else ""

    def read(self, take: Callable[[dict[str, Any]], Any]) -> Any:
        """What ``take`` finds in the reply. Raises Unreadable."""
        return take(self.reply())


def votes_of(listed: Any, unclear: Collection[int] = ()) -> tuple[Vote, ...]:
    """The judgements of a line; of those numbered in ``unclear`` a key is given twice, so that they say nothing.

    Raises ValueError that names what is wrong, from ``judgements`` on.
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
    # Each by itself: a damaged judgement is a vote that cannot be read, and takes no other with it.
    return tuple(_nothing(vote) if index in unclear else vote for index, vote in enumerate(votes)) if unclear else votes


def _nothing(vote: Vote) -> Vote:
    return msgspec.structs.replace(vote, output=msgspec.UNSET, text=None, error=f"{_BAD}: a key stands in it twice")


def about(text: str) -> str:
    """The digest of the text that is judged."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def first_votes(votes: Sequence[Vote], key: str, seen: str, judge: str) -> dict[tuple[int, int], Vote]:
    """{(order, vote): judgement} of check ``key`` about the text ``seen``, by ``judge`` where that is not empty.

    Of several the first one counts.
    """
    found: dict[tuple[int, int], Vote] = {}
    for vote in votes:
        if vote.check == key and vote.about == seen and judge in ("", vote.judge):
            found.setdefault((vote.order, vote.vote), vote)
    return found


_UNREAD = object()


class Uncomputable(ValueError):
    """A check that says nothing of an output, since its record lacks what the check is about: the message says what."""


class Unfit(ValueError):
    """An answer that has nothing for a check to look at, or too much: it fails the check, and a negated one, too."""


class Usage(NamedTuple):
    """What an output took, as far as its record says: seconds, money, tokens."""

    latency: float | None = None
    cost: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Prompt and completion together; None where neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)


_NOTHING = Usage()
Form = Literal["none", "nfc", "nfkc"]
"""A normal form of Unicode (UAX 15)."""


def plain(text: str, ignore_case: bool, form: Form) -> str:
    """A text as it is compared: without its case, in a normal form of Unicode."""
    if form == "none":
        return text.casefold() if ignore_case else text
    named: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    text = unicodedata.normalize(named, text)
    # Folding can leave what is in no normal form.
    return unicodedata.normalize(named, text.casefold()) if ignore_case else text


class Answer:
    """``output`` is any JSON value, ``text`` the whole of it where the record has that besides.

    ``tool_calls`` is the record's own list of them, None where it has none; ``judgements`` what judges said of it.
    """

    __slots__ = (
        *("_data", "_encoded", "_folded", "_json", "_plain", "_text", "_tool_calls"),
        *("judgements", "output", "usage"),
    )

    def __init__(
        self,
        output: Any,
        text: str | None = None,
        usage: Usage | None = None,
        tool_calls: Any = None,
        judgements: Sequence[Vote] = (),
    ) -> None:
        self.output = output
        self.judgements = judgements
        self.usage = usage or _NOTHING
        self._text = text
        self._data = text is None and (output is None or isinstance(output, list | dict))
        self._plain: dict[tuple[bool, Form], str] = {}
        self._folded: str | None = None
        self._encoded: bytes | None = None
        self._json: Any = _UNREAD
        self._tool_calls = tool_calls

    @property
    def text(self) -> str:
        """The answer as text: itself, or the JSON of what is no text; nothing of null."""
        if self._text is None:
            if self.output is None:
                self._text = ""
            else:
                self._text = self.output if isinstance(self.output, str) else msgspec.json.encode(self.output).decode()
        return self._text

    @property
    def prose(self) -> str:
        """The text, of an answer that is one. Raises Unfit for null, a list or a mapping without a text besides."""
        if self._data:
            raise Unfit(f"{kind_of(self.output)}, not a text: `at` names the part of it that is one")
        return self.text

    @property
    def folded(self) -> str:
        """The text without its case."""
        if self._folded is None:
            self._folded = self.text.casefold()
        return self._folded

    def plain(self, ignore_case: bool, form: Form) -> str:
        """The text as it is compared: without its case, in a normal form of Unicode."""
        if form == "none":
            return self.folded if ignore_case else self.text
        if (ignore_case, form) not in self._plain:
            self._plain[ignore_case, form] = plain(self.text, ignore_case, form)
        return self._plain[ignore_case, form]

    @property
    def encoded(self) -> bytes:
        """The text in UTF-8."""
        if self._encoded is None:
            # JSON lets half a surrogate pair through, which UTF-8 has no bytes for: no answer may end a run of checks.
            self._encoded = self.text.encode("utf-8", "surrogatepass")
        return self._encoded

    @property
    def json(self) -> Any:
        """The value, or the JSON that a text is or has in its one fenced block. Raises NoJson."""
        if self._json is _UNREAD:
            try:
                self._json = extract(self.output) if isinstance(self.output, str) else self.output
            except NoJson as error:
                # Kept like a value: several checks ask, and to look for a fenced block is to read all of the text.
                self._json = error
        if isinstance(self._json, NoJson):
            raise self._json
        return self._json

    def _shown_json(self) -> Any:
        """The JSON of the answer; of a text without any, the text."""
        try:
            return self.json
        except NoJson:
            return self.output

    def part(self, value: Any) -> Answer:
        """A part of the answer, as an answer of its own."""
        # A part of the output has no calls and no judges of its own: these are about the whole.
        return Answer(value, None, self.usage, self._tool_calls, self.judgements)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools, in their order. Raises Uncomputable where the record does not say."""
        try:
            calls = calls_in(self._shown_json() if self._tool_calls is None else {"tool_calls": self._tool_calls})
        except NoCall as error:
            raise Uncomputable(str(error)) from None
        if calls is None:
            raise Uncomputable("the record says nothing of tool calls: its line, or its output, needs tool_calls")
        return calls


# What a recorded call says that it came to: an output or none, and what it took in seconds, money, tokens.

_TOKENS = ("prompt_tokens", "completion_tokens")


class Misplaced(ValueError):
    """A key of the line holds what it cannot hold."""


def _is_error(value: Any) -> bool:
    """Whether what stands under ``error`` is one: many recorders write null, false or nothing beside each answer."""
    return bool(value.strip() if isinstance(value, str) else value)


def lacks_output(record: dict[str, Any]) -> bool:
    """Whether there is none, or a reason why there is none."""
    return _is_error(record.get("error")) or "output" not in record


def why_no_output(record: dict[str, Any]) -> str:
    """Why a line has no output; a recorder may have left its reason under ``error``."""
    error = record.get("error")
    if not _is_error(error):
        return "output: missing"
    if isinstance(error, str):
        return f"no output: {shorten(error, 200)}"
    return f"error: {kind_of(error)} where a string is wanted"


def usage_of(record: dict[str, Any]) -> Usage:
    """What the line says that its output took: by its own keys, else by its attempts. Raises Misplaced."""
    cost, latency = (_amount(record, key, "") for key in ("cost", "latency_seconds"))
    prompt, completion = (_count(record, key, "") for key in _TOKENS)
    attempts = record.get("attempts")
    if not attempts:
        return Usage(latency, cost, prompt, completion)
    if not isinstance(attempts, list):
        raise Misplaced(f"attempts: {kind_of(attempts)} where a list is wanted")
    costs, prompts, completions = [], [], []
    last: float | None = None
    for index, attempt in enumerate(attempts):
        where = f"attempts[{index}]"
        if not isinstance(attempt, dict):
            raise Misplaced(f"{where}: {kind_of(attempt)} where an object is wanted")
        # Of the last one: the attempts before it gave no output.
        last = _amount(attempt, "latency_seconds", f"{where}.")
        # Of all: what failed is paid for, too.
        costs.append(_amount(attempt, "cost", f"{where}."))
        prompts.append(_count(attempt, "prompt_tokens", f"{where}."))
        completions.append(_count(attempt, "completion_tokens", f"{where}."))
    return Usage(
        latency if latency is not None else last,
        cost if cost is not None else _sum(costs),
        prompt if prompt is not None else _sum(prompts),
        completion if completion is not None else _sum(completions),
    )


def _sum(values: list[Any]) -> Any:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _amount(holder: dict[str, Any], key: str, where: str) -> float | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e15 or not math.isfinite(value):
        raise Misplaced(f"{where}{key}: {found(holder, key)} where a number from 0 is wanted")
    return float(value)


def _count(holder: dict[str, Any], key: str, where: str) -> int | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1e15:
        raise Misplaced(f"{where}{key}: {found(holder, key)} where a whole number from 0 is wanted")
    return value
