"""evalq's only message, a hint (run, seq, epoch), in Celery's envelope; parsed strictly.

Anyone who can reach the broker can put anything into a queue. A message that is not exactly a hint is refused before
anything acts on it. A hint gets a new envelope, so that nothing else in the old one (an ETA, a callback task, a
compressed body) has an effect.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec

from evalq.evalcore.errors import WireError

TASK = "evalq.evaluate"
MAX_HINT_BYTES = 16 << 10
"""The largest item that is parsed; a hint in its envelope takes about 1 KiB."""

# Below 2^53, because Lua scripts count in doubles.
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
# No blank, brace, slash or newline, because it becomes part of keys, paths and log lines.
_Run = Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[\w.:-]+\Z")]


REPLIES = "reply.celery.pidbox"
"""The exchange for replies to remote control, by Celery's name."""
MAX_BROADCAST_BYTES = 64 << 10
"""The largest remote-control request that is parsed. One to 1,000 workers by name takes about 50 KiB."""


class Hint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Chunk ``seq`` of ``run`` may need computing. ``epoch`` is that of the driver which published the hint."""

    run: _Run
    seq: _Count
    epoch: _Count


class _Embed(msgspec.Struct):
    """Celery's callbacks and chains, none of which evalq allows."""

    callbacks: None = None
    errbacks: None = None
    chain: None = None
    chord: None = None


class _NoArguments(msgspec.Struct, forbid_unknown_fields=True):
    """The keyword arguments of the task: none."""


class _HintBody(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    hint: Hint
    kwargs: _NoArguments
    embed: _Embed


class _Headers(msgspec.Struct):
    task: Literal["evalq.evaluate"]
    id: Annotated[str, msgspec.Meta(max_length=160, pattern=r"\A[\w./:-]+\Z")]


class _Properties(msgspec.Struct):
    body_encoding: Literal["base64"]


class _Envelope(msgspec.Struct):
    body: str
    content_type: Literal["application/json"] = msgspec.field(name="content-type")
    headers: _Headers
    properties: _Properties


_envelopes = msgspec.json.Decoder(_Envelope)
_bodies = msgspec.json.Decoder(_HintBody)


def read_hint(item: bytes) -> tuple[str, Hint]:
    """(message id, hint) from a queue's item. Raises WireError, with the reason, if it is not a hint."""
    if len(item) > MAX_HINT_BYTES:
        raise WireError(f"{len(item)} bytes, where a hint has at most {MAX_HINT_BYTES}")
    try:
        envelope = _envelopes.decode(item)
        return envelope.headers.id, _bodies.decode(b64decode(envelope.body, validate=True)).hint
    # b64decode raises ValueError for text outside ASCII, msgspec raises RecursionError for deep nesting.
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise WireError(str(error)[:200]) from error


def rewritten(item: bytes, queue: str) -> bytes:
    """A new envelope with only the id and the hint of ``item``, in kombu's form. Raises WireError."""
    task_id, hint = read_hint(item)
    return envelope(task_id, hint, queue)


# -- remote control: a broadcast is another application's, or anyone's --------------------------------


class ReplyTo(msgspec.Struct):
    """Where a reply goes: to the exchange for replies, and never to another application's queue."""

    exchange: Literal["reply.celery.pidbox"]
    routing_key: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[0-9a-fA-F-]+\Z")]


class ControlRequest(msgspec.Struct):
    """A request of `celery inspect` or `celery control`. Its arguments are ignored."""

    method: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A\w+\Z")]
    destination: list[str] | None = None
    pattern: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    matcher: Literal["glob", "pcre"] | None = None
    ticket: Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[0-9a-fA-F-]+\Z")] | None = None
    reply_to: ReplyTo | None = None

    def is_for(self, name: str) -> bool:
        """Whether the worker ``name`` is meant: by name, by a pattern with * and ?, or as one of all."""
        if self.destination:
            return name in self.destination
        if self.pattern:  # no regular expression of a stranger's is tried: it could take for ever
            return self.matcher == "glob" and fnmatchcase(name, self.pattern)
        return True


class _BroadcastEnvelope(msgspec.Struct):
    body: str
    properties: _Properties
    content_type: Literal["application/json"] = msgspec.field(name="content-type")


_broadcasts = msgspec.json.Decoder(_BroadcastEnvelope)
_requests = msgspec.json.Decoder(ControlRequest)


def rewritten_broadcast(item: bytes) -> bytes:
    """A new envelope with only the request of ``item``, in kombu's form. Raises WireError if it has none."""
    if len(item) > MAX_BROADCAST_BYTES:
        raise WireError(f"{len(item)} bytes, where a request has at most {MAX_BROADCAST_BYTES}")
    try:
        request = _requests.decode(b64decode(_broadcasts.decode(item).body, validate=True))
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise WireError(str(error)[:200]) from error
    return msgspec.json.encode(
        {
            "body": b64encode(msgspec.json.encode(request)).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {},
            "properties": {
                "delivery_info": {"exchange": "", "routing_key": ""},
                "body_encoding": "base64",
                "delivery_tag": uuid4().hex,
            },
        }
    )


def envelope(task_id: str, hint: Hint, queue: str) -> bytes:
    """A hint as an item of the Redis list ``queue``, in the form that kombu gives Celery's messages."""
    body = msgspec.json.encode([hint, {}, _Embed()])
    message: dict[str, Any] = {
        "body": b64encode(body).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"lang": "py", "task": TASK, "id": task_id, "root_id": task_id, "ignore_result": True},
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "body_encoding": "base64",
            # kombu stores messages under this tag until they are acknowledged, so the sender must not choose it.
            "delivery_tag": uuid4().hex,
        },
    }
    return msgspec.json.encode(message)
