"""Server-sent events: one reader for all kinds of targets that stream, and what joins events into a reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from evalq.workers.targets.answers import FailureKind

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_SHOWN = 200


class ServerEvent(NamedTuple):
    """One event: its type ("" without one), and its data."""

    type: str
    data: str


class EventReader:
    """Reads events from the bytes of a reply, however they are cut into pieces.

    Lines may end with CRLF, LF or CR. Comments, ids and waits are skipped, and an event without its last, empty line
    is none: the stream was cut there. `feed` raises StreamFailed for an event of more than ``most`` bytes.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        self._most = most
        self._rest = bytearray()
        self._searched = 0
        self._type, self._data = "", list[str]()
        self._held = 0
        self._begun = False

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that ``piece`` completes."""
        self._rest += piece
        if not self._begun:
            if len(self._rest) < len(_BOM) and _BOM.startswith(bytes(self._rest)):
                return []
            self._begun = True
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
        events, start = [], 0
        # Search only what is new: a line may come in many pieces.
        for end in _LINE_END.finditer(self._rest, self._searched):
            if end.end() == len(self._rest) and end[0] == b"\r":
                break  # the other half of a line's end may come
            event = self._line(bytes(self._rest[start : end.start()]))
            if event is not None:
                events.append(event)
            start = end.end()
        del self._rest[:start]
        if len(self._rest) + self._held > self._most:
            raise StreamFailed("bad_output", f"an event of the stream is longer than max_bytes, {self._most}")
        self._searched = len(self._rest) - 1 if self._rest.endswith(b"\r") else len(self._rest)
        return events

    def end(self) -> list[ServerEvent]:
        """The events that the end of the stream completes: its last line may end with CR."""
        return self.feed(b"\n") if self._rest.endswith(b"\r") else []

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            event = ServerEvent(self._type, "\n".join(self._data)) if self._data else None
            self._type, self._data, self._held = "", [], 0
            return event
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        if name == b"data":
            self._data.append(text)
            self._held += len(line)
        elif name == b"event":
            self._type = text
        return None


class AwsEventReader:
    """Reads events of AWS's event stream (binary, with checksums) by botocore's parser.

    An exception in the stream has its type after "exception:". `feed` raises StreamFailed for a damaged stream, and for
    an event of more than ``most`` bytes.
    """

    def __init__(self, most: int = 1 << 30) -> None:
        from botocore.eventstream import EventStreamBuffer  # the kind that streams so needs botocore

        self._most, self._held = most, 0
        self._buffer = EventStreamBuffer()

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """The events that ``piece`` completes."""
        from botocore.eventstream import ParserError

        self._held += len(piece)
        self._buffer.add_data(piece)
        events = []
        try:
            for event in self._buffer:
                self._held = 0
                events.append(_aws_event(event.headers, event.payload))
        except ParserError as error:
            raise StreamFailed("server", f"the event stream is damaged: {error}") from None
        if self._held > self._most:
            raise StreamFailed("bad_output", f"an event of the stream is longer than max_bytes, {self._most}")
        return events

    def end(self) -> list[ServerEvent]:
        """None: an event that is not whole was cut off."""
        return []


def _aws_event(headers: Mapping[str, Any], payload: bytes) -> ServerEvent:
    kind = str(headers.get(":event-type", ""))
    data = payload.decode(errors="replace") or "{}"
    if headers.get(":message-type") == "exception":
        kind = f"exception:{headers.get(':exception-type', '')}"
    elif headers.get(":message-type") == "error":
        kind = f"exception:{headers.get(':error-code', '')}"
        data = msgspec.json.encode({"message": str(headers.get(":error-message", ""))}).decode()
    return ServerEvent(kind, data)


# -- what the events of a stream make --------------------------------------------------------------------


class StreamFailed(Exception):
    """A stream that gives no reply: an error event, a cut, or events that are not of this API."""

    def __init__(self, kind: FailureKind, reason: str, finish: str | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.finish = finish


class Joined(Protocol):
    """Makes one reply of the events of a stream: the one that the API gives without streaming."""

    done: bool
    """Whether the stream said its end."""
    written: bool
    """Whether the model has begun to write: a text, its reasoning, or the call of a tool."""

    def take(self, event: str, value: Any) -> None:
        """Take the next event, whose data is JSON. Raises StreamFailed for one that ends the call."""

    def value(self) -> Any:
        """The reply. Raises StreamFailed if its end is missing."""


def cut_off(what: str) -> StreamFailed:
    """The failure of a stream that ended too early."""
    return StreamFailed("server", f"the stream was cut off: {what}")


# -- errors in the body of a reply or in an event ----------------------------------------------------------

_KINDS: tuple[tuple[FailureKind, str, tuple[str, ...]], ...] = (
    ("quota", "the account's quota is spent", ("insufficient_quota", "billing", "credit balance is too low")),
    ("rate_limit", "asked too often", ("rate_limit", "resource_exhausted", "throttl", "too_many", "toomany")),
    ("rate_limit", "the provider is overloaded", ("overloaded",)),
    ("auth", "the server does not accept the key: see api_key_env",
     ("authentication", "unauthenticated", "permission", "invalid_api_key", "accessdenied", "unauthorized")),
    ("timeout", "the server gave up waiting", ("timeout", "deadline_exceeded", "timed_out")),
    ("refused", "the provider's content filter refuses this request",
     ("content_filter", "content_policy", "responsibleaipolicy", "image_content_policy")),
    ("refused", "the server refuses this request",
     ("invalid_request", "invalid_argument", "invalid_prompt", "not_found", "validation", "failed_precondition",
      "request_too_large", "invalid_image", "context_length", "too_long")),
)  # fmt: skip
"""Words in the type, code or status of an error, in lower case; the first that is found counts."""
_BY_NUMBER: dict[int, FailureKind] = {
    **dict.fromkeys((400, 404, 413, 422), "refused"),
    **dict.fromkeys((401, 403), "auth"),
    **dict.fromkeys((429, 529), "rate_limit"),
    402: "quota",
    408: "timeout",
}
CONTENT_FILTER = "content_filter"


def error_of(error: Any, where: str) -> StreamFailed:
    """The failure in an error object of any provider: ``{type, code, status, message}``, or a text."""
    fields = error if isinstance(error, Mapping) else {"message": error}
    message = fields.get("message")
    said = " ".join(message.split())[:_SHOWN] if isinstance(message, str) else ""
    inner = fields.get("innererror")
    named = [fields.get(key) for key in ("code", "type", "status")]
    named += [inner.get("code")] if isinstance(inner, Mapping) else []
    texts = [name for name in named if isinstance(name, str)]
    kind, meaning = _meaning([text.lower() for text in texts], said.lower(), named)
    finish = CONTENT_FILTER if "content filter" in meaning else None
    shown = next(filter(None, texts), "")
    # The server's text comes last: the search for a secret that was cut off looks only at the end.
    parts = (f"{where}: {meaning}", f"({shown[:40]})" if shown else "")
    return StreamFailed(kind, " ".join(filter(None, parts)) + (f": {said}" if said else ""), finish)


def _meaning(words: Iterable[str], said: str, named: Iterable[Any]) -> tuple[FailureKind, str]:
    known = [*words]
    for kind, meaning, signs in _KINDS:
        in_words = [sign for sign in signs for word in known if sign in word]
        if in_words or (kind == "quota" and signs[-1] in said):
            return kind, meaning
    number = next((name for name in named if type(name) is int), 0)
    of_number = _BY_NUMBER.get(number, "server")
    return of_number, next((meaning for kind, meaning, _ in _KINDS if kind == of_number), "the server failed")
