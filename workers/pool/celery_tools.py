"""What Celery's own tools see of a worker: its events, the titles of its tasks, and the commands that it answers.

All of it is off unless the settings `celery_events` and `remote_control` ask for it. docs/how-to/beside-celery.md shows
the tools. Requests come from anyone who can reach the broker, so a worker answers those that only read, ignores their
arguments, and leaves out what its own configuration says of servers.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import redis
from celery import bootsteps
from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher
from celery.worker import control, pidbox
from celery.worker.consumer import Consumer
from celery.worker.consumer.control import Control
from celery.worker.request import Request

from evalq.evalcore.errors import EvalqError
from evalq.workers.broker.message import ControlRequest, Hint
from evalq.workers.ledger.keys import RunKeys
from evalq.workers.servers.connections import connect
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.worker")

_EVENTS_KEPT = 1000
"""Events that a worker keeps while its server refuses them; Celery itself has no limit."""
_RUNS = 256
"""Runs whose titles a worker remembers."""
_PLANNING_SECONDS = 0.2
"""How old the number of chunks may be while it still grows."""
_RETRY_SECONDS = 10.0
"""How long a worker leaves a ledger alone that did not answer: titles are worth no waiting."""
_ANSWER_SECONDS = 0.5
_REFUSED_SHOWN = 20
"""Refused commands that the log names."""


class _Title(NamedTuple):
    name: str  # evaluator and suite
    chunks: int | None  # None while evalq still plans the run
    read: float


class TaskTitles:
    """The titles of chunks, such as "vs nightly, chunk 3 of 40". The ledger is asked once a run, after it is planned.

    The main process asks, between its messages, and waits for half a second at most.
    """

    def __init__(self, settings: Callable[[], Settings], clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._known: OrderedDict[str, _Title] = OrderedDict()
        self._client: redis.Redis | None = None
        self._away_until = float("-inf")

    def of(self, hint: Hint) -> tuple[str, str]:
        """(name of the task, title of the chunk). The names are few: evaluator and suite, as in evalq's metrics."""
        title = self._known.get(hint.run)
        now = self._clock()
        if title is None or (title.chunks is None and now - title.read > _PLANNING_SECONDS):
            title = self._read(hint.run, now) or title
        if title is None:
            return "evalq.evaluate", f"chunk {hint.seq + 1} of run {hint.run}"
        self._known[hint.run] = title
        self._known.move_to_end(hint.run)
        if len(self._known) > _RUNS:
            self._known.popitem(last=False)
        of = "" if title.chunks is None else f" of {title.chunks}"
        return f"evalq {title.name}", f"{title.name}, chunk {hint.seq + 1}{of}"

    def _read(self, run: str, now: float) -> _Title | None:
        if now < self._away_until:
            return None
        meta = RunKeys.of(run).meta
        try:
            if self._client is None:
                settings = self._settings()
                self._client = connect(settings.ledger_address, settings, _ANSWER_SECONDS, again=False)
            pipe = self._client.pipeline(transaction=False)
            pipe.hmget(meta, "label", "chunks")
            pipe.hexists(meta, "seal")
            (label, chunks), sealed = pipe.execute()
        except (redis.RedisError, EvalqError, OSError):
            self._away_until = now + _RETRY_SECONDS
            return None
        # The ledger writes " EVALUATOR SUITE"; anyone who can write there could have written anything.
        name = " ".join((label or b"").decode(errors="replace").split())[:200]
        if not name.isprintable() or not name or not (chunks or b"").isdigit():
            return None
        return _Title(name, int(chunks) if sealed else None, now)


def request_class(titles: TaskTitles) -> type:
    """Celery's class of requests, with titles for events and for `celery inspect`."""

    class ChunkRequest(Request):  # type: ignore[misc]  # Celery is untyped
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self._kwargsrepr = "{}"
            if self._eventer and self._eventer.enabled:
                self._take_title()

        def _take_title(self) -> None:
            try:
                hint = msgspec.convert(list(self._args), Hint)
            except (msgspec.ValidationError, TypeError):
                self._argsrepr = "not a chunk of evalq's"
            else:
                self.name, self._argsrepr = titles.of(hint)

        def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 - Celery's name
            """With the title, which may know by now how many chunks there are; tools show the newest."""
            if self._eventer and self._eventer.enabled:
                self._take_title()
                super().send_event(type, **{"name": self.name, "args": self._argsrepr} | fields)

        def info(self, safe: bool = False) -> dict[str, Any]:
            """For `celery inspect active`: the title in place of the arguments; evalq may have planned more by now."""
            self._take_title()
            shown: dict[str, Any] = super().info(safe=True)
            return shown

    return ChunkRequest


# -- remote control ----------------------------------------------------------------------------------


def _ping(_: Any) -> Any:
    return {"ok": "pong"}


def _stats(state: Any) -> Any:
    shown = dict(control.stats(state))
    # kombu lists what it connects with here, which includes passwords.
    server = state.app.conf.broker_url.partition("://")[2]
    return shown | {"broker": {"transport": "evalq", "hostname": server}}


def _registered(state: Any) -> Any:
    return sorted(name for name in state.app.tasks if not name.startswith("celery."))


ANSWERED: Mapping[str, Callable[[Any], Any]] = {
    "ping": _ping,
    "active": control.active,
    "reserved": control.reserved,
    "registered": _registered,
    "stats": _stats,
    "active_queues": control.active_queues,
}
"""The commands that a worker answers, none of which changes anything."""
_ALIASES = {"dump_active": "active", "dump_reserved": "reserved", "dump_tasks": "registered"}


class _ReadOnlyMailbox(pidbox.Pidbox):  # type: ignore[misc]  # Celery is untyped
    """A worker's mailbox that answers `ANSWERED`, and refuses all other commands."""

    def __init__(self, c: Any) -> None:
        super().__init__(c)
        self._refused: set[str] = set()

    def on_message(self, body: Any, message: Any) -> None:
        """Answer one request, if it is for this worker. Its sender may be anyone."""
        self._forward_clock()
        try:
            request = msgspec.convert(body, ControlRequest)
        except msgspec.ValidationError as error:
            log.warning("a remote-control request that Celery did not write was dropped: %.200s", error)
            return
        if not request.is_for(self.hostname):
            return
        try:
            self._answer(request)
        except Exception as error:
            log.warning("remote control: %s was not answered: %.200r", request.method, error)
            self.reset()

    def _answer(self, request: ControlRequest) -> None:
        command = ANSWERED.get(_ALIASES.get(request.method, request.method))
        if command is None:
            # Once for each: Flower and celery-exporter ask for events every few seconds.
            if request.method not in self._refused and len(self._refused) < _REFUSED_SHOWN:
                self._refused.add(request.method)
                log.warning("remote control: %s was refused, since remote_control is read-only", request.method)
            answer: Any = {"error": f"{request.method} is refused: evalq's workers answer {', '.join(ANSWERED)}"}
        else:
            answer = command(self.node.state)
        if request.reply_to is not None:
            where = request.reply_to
            self.node.reply({self.hostname: answer}, where.exchange, where.routing_key, request.ticket)


class _ReadOnlyControl(Control):  # type: ignore[misc]  # Celery is untyped
    """Celery's step for remote control, with that mailbox."""

    def __init__(self, c: Any, **named: Any) -> None:
        bootsteps.StartStopStep.__init__(self, c, **named)
        self.is_green = False
        self.box = _ReadOnlyMailbox(c)
        self.start, self.stop, self.shutdown = self.box.start, self.box.stop, self.box.shutdown


class _Dispatcher(EventDispatcher):  # type: ignore[misc]  # Celery is untyped
    """Celery's dispatcher of events, which keeps a limited number of those that a server refuses."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._outbound_buffer: deque[Any] = deque(maxlen=_EVENTS_KEPT)


class BoundedEvents(Events):  # type: ignore[misc]  # Celery is untyped
    """For Celery's ``events_cls``."""

    dispatcher_cls = _Dispatcher


def consumer_class(settings: Settings) -> type:
    """Celery's consumer for these settings.

    It lacks the step that makes `celery_delayed_*` exchanges and queues for quorum queues: all applications of a
    virtual host share them, and evalq delays no messages.
    """
    ours = {} if settings.remote_control == "off" else {"Control": _ReadOnlyControl}
    steps = (step for step in Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery"))

    class ChunkConsumer(Consumer):  # type: ignore[misc]  # Celery is untyped
        class Blueprint(Consumer.Blueprint):  # type: ignore[misc]  # Celery is untyped
            default_steps = tuple(ours.get(step.rpartition(":")[2], step) for step in steps)

    return ChunkConsumer
