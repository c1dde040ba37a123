"""The one message there is, (run, seq, epoch), in the envelope Celery sends: read strictly, or not at all.

Whoever reaches the broker can put anything into a queue. What is not exactly a hint is refused before any of it is
acted on; what is one is written anew, so that nothing else in its envelope (a time to wait until, a task to call
afterwards, a compressed body) comes through.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec

from evalq.evalcore.errors import WireError

TASK = "evalq.evaluate"
MAX_HINT_BYTES = 16 << 10
"""A hint in its envelope takes about 1 KiB; a larger item is refused before it is parsed."""

# 2^53: the scripts of the ledger count in doubles, as Lua does.
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
# It becomes part of keys, paths and log lines: no blank, brace, slash or newline.
_Run = Annotated[str, msgspec.Meta(max_length=64, pattern=r"\A[\w.:-]+\Z")]


class Hint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Chunk ``seq`` of ``run`` may want computing, as its restart number ``epoch`` sees it."""

    run: _Run
    seq: _Count
    epoch: _Count


class _Embed(msgspec.Struct):
    """What a Celery message may ask for besides its task: nothing, here."""

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
    """The message id and the hint in a queue's item. Raises WireError that says why it is none."""
    if len(item) > MAX_HINT_BYTES:
        raise WireError(f"{len(item)} bytes, where a hint has at most {MAX_HINT_BYTES}")
    try:
        envelope = _envelopes.decode(item)
        return envelope.headers.id, _bodies.decode(b64decode(envelope.body, validate=True)).hint
    # b64decode raises ValueError for text outside ASCII, msgspec raises RecursionError for deep nesting.
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise WireError(str(error)[:200]) from error


def rewritten(item: bytes, queue: str) -> bytes:
    """The envelope of ``item`` with nothing in it but its id and hint, as kombu reads it. Raises WireError."""
    task_id, hint = read_hint(item)
    return envelope(task_id, hint, queue)


def envelope(task_id: str, hint: Hint, queue: str) -> bytes:
    """A hint as an item of a Redis ``queue``, in the form in which kombu puts a message of Celery's there."""
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
            # kombu keeps messages by this tag until they are done: one chosen by a sender could hide another's.
            "delivery_tag": uuid4().hex,
        },
    }
    return msgspec.json.encode(message)
