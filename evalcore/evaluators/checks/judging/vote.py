"""One recorded judgement: what a judge replied when it was asked about an answer, as it stands in a line's
``judgements``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any

import msgspec

from evalq.evalcore.model.calls import Attempt
from evalq.evalcore.naming import kind_of
from evalq.evalcore.records.extract import NoJson
from evalq.evalcore.records.markers import reply_of, whole_reply

__all__ = ["LONGEST", "Unreadable", "Vote", "about", "first_votes", "votes_of"]

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
