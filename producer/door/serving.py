"""The process that answers requests of other programs: from stock Celery messages to stock Celery results.

It speaks Celery's protocol and runs no Celery worker: a message cannot name another task, a callback, a chain or a
serializer, and what cannot be read costs the process nothing. Each sender gets the run's id, or an error, as the result
of its task.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport import redis as stock

from evalq.evalcore import errors
from evalq.evalcore.errors import ConfigError, EvalqError, UsageError
from evalq.evalcore.model.canonical import canonical_json
from evalq.producer.door.request import MOST_BYTES, Allowed, SubmitRequest, decoded, read_request, shown, starts
from evalq.producer.folder.job import RunOptions
from evalq.producer.lifecycle.start import leave
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import Backend
from evalq.workers.address import Address, read_address
from evalq.workers.broker import transport
from evalq.workers.names import SUBMIT_QUEUE, SUBMIT_TASK, SUBMITTED
from evalq.workers.processes import identity
from evalq.workers.processes.environment import without_secrets
from evalq.workers.processes.system import child, die_with_parent
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import SERVER_ERRORS, explained
from evalq.workers.settings import Settings, take_checks

log = logging.getLogger("evalq.worker")

RESULT_SECONDS = 86_400
"""How long a result is kept: a day, as Celery does by default."""
_RESULT = "celery-task-meta-"
"""The prefix of a result's key and channel, which every Celery client reads."""
_ID = re.compile(r"[\x21-\x7e]{1,255}")
_ENVELOPE_BYTES = 2 * MOST_BYTES
_POLL_SECONDS = 0.5
_PAUSES = 1.0, 30.0


# -- the queue: Celery's own names, in a database of its own ----------------------------------------


class _StockQoS(transport.QoS):
    """The messages that are under way, under Celery's own names."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Requeue a message of a process that died; one that cannot be read is dropped."""
        try:
            stock.QoS.restore_by_tag(self, tag, client=client, leftmost=leftmost)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            log.warning("a request that is no message of Celery was dropped: %.200r", error)
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]  # kombu's


class _StockChannel(transport.StockNamedChannel):
    """A channel of the queue that stock Celery clients send to, which drops what is no message of theirs."""

    QoS = _StockQoS
    unacked_key = stock.Channel.unacked_key
    unacked_index_key = stock.Channel.unacked_index_key
    unacked_mutex_key = stock.Channel.unacked_mutex_key

    def _do_restore_message(
        self, payload: Any, exchange: Any, routing_key: Any, pipe: Any, leftmost: bool = False
    ) -> None:
        if routing_key != SUBMIT_QUEUE:
            raise ValueError(f"{routing_key!r:.100} is not the queue of requests")
        stock.Channel._do_restore_message(self, payload, exchange, routing_key, pipe, leftmost)

    def _only_hints(self, answer: Any, **options: Any) -> tuple[bytes, bytes] | None:
        """BRPOP's reply with a new envelope for the item; None, as for a timeout, if that is no envelope."""
        if not answer:
            return None
        queue, item = answer
        try:
            return queue, _plain_envelope(item)
        except (ValueError, RecursionError) as error:
            log.warning("a request that is no message of Celery was dropped: %.200s", error)
            return None


class _StockProperties(msgspec.Struct):
    delivery_tag: str
    body_encoding: str | None = None


class _StockEnvelope(msgspec.Struct):
    """Celery's envelope in Redis; of its parts those that matter here."""

    body: str
    properties: _StockProperties
    headers: dict[str, msgspec.Raw] = {}
    content_type: str | None = msgspec.field(default=None, name="content-type")
    content_encoding: str | None = msgspec.field(default=None, name="content-encoding")


_MOST_HEADER = 1000
_HEADERS = ("task", "id", "eta", "expires", "compression")


def _plain_envelope(item: bytes) -> bytes:
    """The envelope with nothing in it but short texts. Raises ValueError."""
    if len(item) > _ENVELOPE_BYTES:
        raise ValueError(f"{len(item):,} bytes")
    given = msgspec.json.decode(item, type=_StockEnvelope)
    headers = {name: text for name in _HEADERS if (text := _header(given.headers.get(name)))}
    if "compression" in headers:  # under another name: kombu would unpack the body, to any size
        headers["packed"] = headers.pop("compression")
    properties = {
        "delivery_tag": given.properties.delivery_tag,
        "body_encoding": given.properties.body_encoding,
        "delivery_info": {"exchange": SUBMIT_QUEUE, "routing_key": SUBMIT_QUEUE},
    }
    plain = {"body": given.body, "headers": headers, "properties": properties}
    return msgspec.json.encode(
        {**plain, "content-type": given.content_type, "content-encoding": given.content_encoding}
    )


def _header(raw: msgspec.Raw | None) -> str:
    """A header that is a short text; empty for others."""
    value = msgspec.json.decode(raw) if raw is not None and len(bytes(raw)) <= _MOST_HEADER else None
    return value if isinstance(value, str) else ""


class _StockTransport(transport.RedisTransport):
    Channel = _StockChannel


_SCHEME = "evalq-submit-redis"


def _connection(server: Address, settings: Settings) -> Connection:
    TRANSPORT_ALIASES.update(transport.SCHEMES)
    TRANSPORT_ALIASES[_SCHEME] = f"{__name__}:{_StockTransport.__qualname__}"
    reach: dict[str, Any] = {"server": server}
    if server.is_redis:
        times = {"answer_seconds": settings.answer_seconds, "connect_seconds": settings.connect_seconds}
        reach |= times | {"health_check_interval": 10, "visibility_timeout": 300}
    scheme = _SCHEME if server.is_redis else "evalq-amqp"
    if server.path:
        scheme += "+socket"
    return Connection(f"{scheme}://{server.where}", transport_options=reach, connect_timeout=settings.connect_seconds)


# -- a message as its sender meant it ----------------------------------------------------------------


class _Sent(NamedTuple):
    """A message: the task's name, and what came with it."""

    task: str
    arguments: Any
    keywords: Any
    embed: Any
    eta: str
    expires: str


def _sent(message: Any) -> _Sent:
    """The message in either of Celery's protocols. Raises UsageError; the task's id is known before (`_id_of`)."""
    if message.content_type != "application/json":
        raise UsageError(f"the request: {message.content_type!r:.100} cannot be read; JSON is needed")
    if message.headers.get("compression") or message.headers.get("packed"):
        raise UsageError("the request: it is compressed; send it plain")
    body = decoded(_body(message))
    headers: Mapping[str, Any] = message.headers
    if "task" in headers:
        if not (isinstance(body, list) and len(body) == 3):
            raise UsageError("the request: the body of a task is [arguments, keyword arguments, options]")
        times = _text(headers, "eta"), _text(headers, "expires")
        return _Sent(str(headers["task"]), body[0], body[1], body[2], *times)
    if not isinstance(body, dict):
        raise UsageError("the request: this is no message of Celery's protocol 1 or 2")
    known = {"callbacks", "errbacks", "chord", "taskset"}
    embed = {name: value for name, value in body.items() if name in known}
    return _Sent(
        str(body.get("task") or ""),
        body.get("args") or [],
        body.get("kwargs") or {},
        embed,
        _text(body, "eta"),
        _text(body, "expires"),
    )


def _text(where: Mapping[str, Any], name: str) -> str:
    value = where.get(name)
    return "" if value is None else str(value)[:100]


def _body(message: Any) -> bytes:
    body = message.body
    return body if isinstance(body, bytes) else str(body).encode()


def _id_of(message: Any) -> str:
    """The id of a message's task, by which its sender waits for the result; empty if it has none that can be one."""
    found = message.headers.get("id")
    if found is None:
        with contextlib.suppress(EvalqError):
            body = decoded(_body(message))
            found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str) and _ID.fullmatch(found) else ""


def _request_of(sent: _Sent, now: datetime) -> SubmitRequest | None:
    """The request; None for one that has expired. Raises UsageError."""
    if sent.task != SUBMIT_TASK:
        raise UsageError(f"task {sent.task[:100]!r}: this queue takes {SUBMIT_TASK} alone")
    if sent.expires and _when(sent.expires, "expires", now) < now:
        return None
    if sent.eta and _when(sent.eta, "eta", now) > now:
        raise UsageError("eta, countdown: a request is carried out at once; use Celery beat for later ones")
    options = sent.embed if isinstance(sent.embed, dict) else {}
    if unwanted := [name for name in ("callbacks", "errbacks", "chain", "chord") if options.get(name)]:
        raise UsageError(f"{', '.join(unwanted)}: a request begins nothing after it; wait for its run instead")
    arguments, keywords = sent.arguments, sent.keywords
    if isinstance(arguments, list) and len(arguments) == 1 and not keywords:
        return read_request(arguments[0])
    if arguments:
        raise UsageError("the request: keyword arguments are needed, or one object")
    return read_request(keywords)


def _when(text: str, name: str, now: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name}: {text[:50]!r} is no time") from None
    return found if found.tzinfo else found.replace(tzinfo=now.tzinfo)


# -- results, as Celery's Redis backend stores them --------------------------------------------------


class _Results:
    """The results of requests, and which request came under an id."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def store(self, task_id: str, state: str, result: Any) -> None:
        """Store a task's result, and wake those who wait for it."""
        meta = {
            "status": state,
            "result": result,
            "traceback": None,
            "children": [],
            "date_done": datetime.now(UTC).isoformat(),
            "task_id": task_id,
        }
        data = json.dumps(meta)
        pipe = self._client.pipeline(transaction=True)
        pipe.set(_RESULT + task_id, data, ex=RESULT_SECONDS)
        pipe.publish(_RESULT + task_id, data)
        pipe.execute()

    def fail(self, task_id: str, error: EvalqError, text: str) -> None:
        """Store an error: its class, where the client has evalq, and its message."""
        name = type(error).__name__
        # Some classes take more than a message; a client makes them anew from it.
        kept = (
            name if name in ("UsageError", "ConfigError", "InputError", "BrokerUnreachable") else "InfrastructureError"
        )
        self.store(task_id, "FAILURE", {"exc_type": kept, "exc_message": [text], "exc_module": errors.__name__})

    def first(self, task_id: str, request: bytes) -> dict[str, Any]:
        """Note that a request came under this id; returns what is noted under it, which may be an earlier one."""
        key = SUBMITTED + hashlib.sha256(task_id.encode()).hexdigest()
        mine = {"request": hashlib.sha256(request).hexdigest()}
        self._client.set(key, json.dumps(mine), nx=True, ex=RESULT_SECONDS)
        noted: dict[str, Any] = json.loads(self._client.get(key) or json.dumps(mine))
        return noted if noted != mine else mine

    def done(self, task_id: str, request: bytes, result: Any) -> None:
        """Note the result of a request, for the case that its message comes again."""
        key = SUBMITTED + hashlib.sha256(task_id.encode()).hexdigest()
        noted = {"request": hashlib.sha256(request).hexdigest(), "result": result}
        self._client.set(key, json.dumps(noted), ex=RESULT_SECONDS)


# -- the process --------------------------------------------------------------------------------------


class Door:
    """Takes requests one after the other, plans each as detached runs, and stores its result."""

    def __init__(self, settings: Settings, allowed: Allowed) -> None:
        self._settings = settings
        self._allowed = allowed
        self._backend = Backend(settings.model_copy(update={"calls": 0, "targets": ""}))
        self._results = _Results(connect(results_address(settings), settings))
        self._stop = threading.Event()

    def stop(self, *_: object) -> None:
        """Take no further request."""
        self._stop.set()

    def serve(self) -> None:
        """Take requests until `stop`. Raises errors of the submit broker and of the server for results."""
        with _connection(read_address(self._settings.submit_broker), self._settings) as connection:
            channel = connection.channel()
            channel.basic_qos(0, 1, False)
            queue = Queue(SUBMIT_QUEUE, Exchange(SUBMIT_QUEUE), routing_key=SUBMIT_QUEUE)
            with Consumer(channel, [queue], on_message=self._take) as consumer:
                consumer.on_decode_error = self._unreadable
                while not self._stop.is_set():
                    with contextlib.suppress(TimeoutError, socket.timeout):
                        connection.drain_events(timeout=_POLL_SECONDS)

    def _unreadable(self, message: Any, error: BaseException) -> None:
        log.warning("a request that is no message of Celery was dropped: %.200s", error)
        message.reject()

    def _take(self, message: Any) -> None:
        task_id = _id_of(message)
        if task_id:
            self._answer(task_id, message)
        else:
            log.warning("a request without a task id was dropped: nobody could hear of its result")
        message.ack()

    def _answer(self, task_id: str, message: Any) -> None:
        """Carry out a request and store its result. Raises errors of the server for results."""
        try:
            sent = _sent(message)
            request = _request_of(sent, datetime.now(UTC))
            if request is None:
                expired = {
                    "exc_type": "TaskRevokedError",
                    "exc_message": ["expired"],
                    "exc_module": "celery.exceptions",
                }
                self._results.store(task_id, "REVOKED", expired)
                return
            wire = canonical_json(request.model_dump(mode="json"))
            noted = self._results.first(task_id, wire)
            if noted["request"] != hashlib.sha256(wire).hexdigest():
                raise UsageError(
                    f"task id {task_id}: it was used for another request before, whose result is "
                    f"{json.dumps(noted.get('result'))[:500]}; send each request under an id of its own"
                )
            result = noted.get("result") or self._begin(request, task_id)
            self._results.done(task_id, wire, result)
            self._results.store(task_id, "SUCCESS", result)
        except EvalqError as error:
            self._results.fail(task_id, error, shown(str(error), self._allowed))
        except SERVER_ERRORS:
            raise
        except Exception:
            log.exception("request %s failed", task_id)
            self._results.fail(task_id, errors.InfrastructureError(), "this request failed; see the worker's log")

    def _begin(self, request: SubmitRequest, task_id: str) -> str | dict[str, str]:
        """Begin the runs of a request; returns the id of its run, or the ids of a suite's runs by their names."""
        found: dict[str, str] = {}
        with _scratch() as scratch:
            for number, start in enumerate(starts(request, self._allowed)):
                # The folder is only for planning: the fleet finishes a detached run from the ledger.
                options = RunOptions(
                    out=scratch / str(number),
                    tags=dict(request.tags),
                    once=request.once or f"{SUBMIT_TASK} {task_id}",
                    priority=request.priority,
                    unpack_bytes=self._settings.unpack_bytes,
                    whole=True,
                )
                name, count = start.name, 1
                while name in found:
                    count += 1
                    name = f"{start.name}-{count}"
                try:
                    found[name] = leave(start.begin(options), self._backend, _Logged()).info().run
                except EvalqError as error:
                    begun = f"; begun before it: {', '.join(found.values())}" if found else ""
                    raise UsageError(f"{name}: {error}{begun}") from None
        return found if request.suite is not None else next(iter(found.values()))


class _Logged(Reporter):
    """Prints nothing; warnings go to the log."""

    def __init__(self) -> None:
        super().__init__("records", quiet=True, bar=False, json_lines=False)

    def warn(self, text: str) -> None:
        log.info("%s", text)


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for run folders and for the notes on them, which goes with the block."""
    with tempfile.TemporaryDirectory(prefix="evalq-") as scratch:
        os.environ["XDG_STATE_HOME"] = str(Path(scratch) / "state")
        yield Path(scratch)


def results_address(settings: Settings) -> Address:
    """The server of results. Raises ConfigError without one."""
    found = read_address(settings.submit_results or settings.submit_broker)
    if not found.is_redis:
        raise ConfigError("submit_results: results need Redis or Valkey: set EVALQ_SUBMIT_RESULTS to its URL")
    return found


def check_door(settings: Settings) -> Allowed:
    """What requests may name, once the settings for them are whole. Raises ConfigError."""
    if not settings.submit_broker:
        raise ConfigError("--submit needs the broker of other programs: EVALQ_SUBMIT_BROKER=URL, or submit_broker:")
    own = {settings.broker_address.location, settings.ledger_address.location}
    for name, address in (
        ("submit_broker", read_address(settings.submit_broker)),
        ("submit_results", results_address(settings)),
    ):
        if address.location in own:
            raise ConfigError(
                f"{name}: it has Celery's own names, so it needs another database or virtual host than evalq's: "
                f"{address} is in use (on Redis, for example, .../1)"
            )
    return Allowed.by(settings)


@contextlib.contextmanager
def door_beside(settings: Settings) -> Iterator[None]:
    """The process for requests beside a worker, for the length of the block, if its settings ask for one."""
    if not settings.submit:
        yield
        return
    check_door(settings)
    stop = threading.Event()
    keeper = threading.Thread(target=_keep, args=(settings, stop), name="evalq-submit", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join()


def _keep(settings: Settings, stop: threading.Event) -> None:
    """Start the process, and again whenever it ends, with longer pauses if it ends at once."""
    pause, longest = _PAUSES
    while not stop.is_set():
        began = time.monotonic()
        process = subprocess.Popen(  # noqa: S603 - this program's own module
            child("evalq.producer.door.serving"), stdin=subprocess.PIPE, env=without_secrets(os.environ)
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # Through the pipe, because URLs hold passwords and every user of the host can read its arguments.
            process.stdin.write(settings.model_dump_json().encode())
            process.stdin.close()
        while process.poll() is None and not stop.wait(_POLL_SECONDS):
            pass
        if stop.is_set():
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(settings.soft_shutdown_seconds)
            process.kill()
            process.wait()
            return
        if time.monotonic() - began > longest:
            pause = _PAUSES[0]
        log.warning(
            "the process for requests ended with exit code %s; it is started again in %g s", process.returncode, pause
        )
        stop.wait(pause)
        pause = min(2 * pause, longest)


def serve(settings: Settings) -> int:
    """Take requests until a signal; returns an exit code."""
    allowed = check_door(settings)
    # Plans have paths from here, which workers look for below their roots.
    os.chdir(next(root for root in allowed.roots if allowed.folder.is_relative_to(root)))
    door = Door(settings, allowed)
    log.info("requests are taken at %s for files below %s", read_address(settings.submit_broker), allowed.folder)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, door.stop)
    try:
        door.serve()
    except SERVER_ERRORS as error:
        log.warning("requests: %s", explained(error, "the submit broker, or the server of its results"))
        return 3
    return 0


def main(data: bytes) -> int:
    """Take requests with the settings of a worker, given as JSON; returns an exit code."""
    die_with_parent()
    identity.log_to_stderr()
    # The worker has checked these settings; reading the environment again could change them.
    settings = Settings.model_validate_json(data)
    take_checks(settings)
    try:
        return serve(settings)
    except EvalqError as error:
        log.warning("requests: %s", error)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer.read()))
