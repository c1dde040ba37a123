"""One recorded output as checks see it: its text, the JSON in it, its tool calls, what it took and cost."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.judging.vote import Vote
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.extract import NoJson, extract
from evalq.evalcore.records.tool_calls import NoCall, ToolCall, calls_in

__all__ = ["Answer", "Form", "ToolCall", "Uncomputable", "Unfit", "Usage", "plain"]

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

    def part(self, value: Any) -> Answer:
        """A part of the answer, as an answer of its own."""
        # A part of the output has no calls and no judges of its own: these are about the whole.
        return Answer(value, None, self.usage, self._tool_calls, self.judgements)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of tools, in their order. Raises Uncomputable where the record does not say."""
        try:
            calls = calls_in(self.output if self._tool_calls is None else {"tool_calls": self._tool_calls})
        except NoCall as error:
            raise Uncomputable(str(error)) from None
        if calls is None:
            raise Uncomputable("the record says nothing of tool calls: its line, or its output, needs tool_calls")
        return calls
