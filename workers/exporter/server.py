"""The exporter's HTTP server and its page: /metrics, /healthz (the process lives), /readyz (the ledger answers)."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import msgspec
import redis
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import EvalqError
from evalq.workers.exporter.collector import ExporterMetrics, FleetMetrics, QualityMetrics, WithLedgerName
from evalq.workers.monitor import Newest, Snapshot, Watch
from evalq.workers.servers.listening import Listening
from evalq.workers.settings import Settings

log = logging.getLogger("evalq.exporter")

# Prometheus asks for one or two formats. Clients can invent more in Accept headers, and must not fill memory.
_FORMATS = 4
_END = b"# EOF\n"
_Encoder = Callable[[Collector], bytes]


class _Part(msgspec.Struct, frozen=True):
    """An evaluator's metrics, rendered from ``histories``."""

    histories: list[Newest]
    text: bytes
    folded: int


class Page:
    """The page of metrics. ``read`` takes a snapshot, given the one before; ``ledger`` is a label of every series.

    An evaluator's own metrics change only when one of its runs ends; until then they are rendered once for each format.
    """

    def __init__(self, read: Callable[[Snapshot | None], Snapshot], most: int, ledger: str) -> None:
        self._read = read
        self._most = most
        self._ledger = ledger
        self._before: Snapshot | None = None
        self._rendered: dict[str, dict[str, _Part]] = {}
        self._lock = threading.Lock()
        self._reason = ""

    def render(self, accept: str) -> tuple[str, bytes]:
        """(content type, text) for an Accept header; if the ledger is away, only the exporter's own metrics."""
        encoder, kind = _encoder(accept)

        def encode(families: Collector) -> bytes:
            return encoder(WithLedgerName(families, self._ledger))

        began = time.monotonic()
        snapshot: Snapshot | None = None
        try:
            snapshot = self._read(self._before)
        except (redis.RedisError, EvalqError, OSError) as error:
            self._log_change(f"the ledger cannot be read: {error}")
        else:
            self._log_change("")
        seconds = time.monotonic() - began
        parts, folded = [], 0
        if snapshot is not None:
            self._before = snapshot
            live = FleetMetrics(snapshot, self._most)
            parts.append(encode(live))
            of_runs = self._of_runs(snapshot, encode, kind)
            parts += [part.text for part in of_runs]
            folded = live.folded + sum(part.folded for part in of_runs)
        server = snapshot.server.run_id if snapshot is not None else ""
        parts.append(
            encode(ExporterMetrics(up=snapshot is not None, seconds=seconds, series_folded=folded, server=server))
        )
        # Each encoded part ends with OpenMetrics' end mark, which may occur only once on a page.
        return kind, b"".join(part.removesuffix(_END) for part in parts[:-1]) + parts[-1]

    def _log_change(self, reason: str) -> None:
        """Log once why the ledger is away, and that it is back."""
        with self._lock:
            known, self._reason = self._reason, reason
        if reason != known:
            log.warning("%s", reason or "the ledger can be read again")

    def _of_runs(self, snapshot: Snapshot, encode: _Encoder, kind: str) -> list[_Part]:
        by_evaluator: dict[str, list[Newest]] = {name: [] for name in plugins.names()}
        for history in snapshot.histories:
            if history.entry.key.evaluator in by_evaluator:
                by_evaluator[history.entry.key.evaluator].append(history)
        with self._lock:
            if kind not in self._rendered and len(self._rendered) >= _FORMATS:
                self._rendered.clear()  # a client may ask for any version of a format
            parts = self._rendered.setdefault(kind, {})
            for name, histories in by_evaluator.items():
                if name not in parts or parts[name].histories != histories:
                    parts[name] = self._part(name, histories, encode)
            return list(parts.values())

    def _part(self, evaluator: str, histories: list[Newest], encode: _Encoder) -> _Part:
        try:
            shown = QualityMetrics(evaluator, histories, self._most)
        # A plug-in that cannot be loaded, or calls sys.exit(), must not hide the metrics of others.
        except (EvalqError, SystemExit) as error:
            log.warning("no metrics of %s: %s", evaluator, error)
            return _Part(histories, b"", 0)
        return _Part(histories, encode(shown), shown.folded)


def _encoder(accept: str) -> tuple[_Encoder, str]:
    """The encoder for an Accept header; the plain format if the header makes no sense."""
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):
        return choose_encoder("")


_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]


class _Server(Listening, WSGIServer):
    def server_bind(self) -> None:
        """Bind, and set up the WSGI environment with the address."""
        super().server_bind()
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = 30
    """A client's time limit for its request, in seconds."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Nothing: a scrape every few seconds is not worth a line."""


class Exporter:
    """The server, bound at construction; ``port`` is the actual port, ``netloc`` host and port."""

    def __init__(self, settings: Settings, bind: str, port: int) -> None:
        """Raises OSError when the address cannot be bound."""
        # A ledger that hangs must be reported before Prometheus gives up.
        self._watch = Watch(settings, unacked=True, patience=settings.connect_seconds)
        self._page = Page(
            self._watch.snapshot, settings.max_series, settings.ledger_name or settings.ledger_address.where
        )
        self._server = _Server((bind, port), _Quiet)
        self._server.set_app(self._answer)
        self.netloc, self.port = self._server.netloc, self._server.server_port

    def serve(self) -> None:
        """Serve until Ctrl-C, or until another thread calls `close`."""
        with contextlib.suppress(KeyboardInterrupt):
            self._server.serve_forever()
        self._server.server_close()

    def close(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            kind, text = self._page.render(environ.get("HTTP_ACCEPT", ""))
            start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(text)))])
            return [text]
        if path == "/healthz":
            start_response("200 OK", _PLAIN)
            return [b"alive\n"]
        if path == "/readyz":
            return self._ready(start_response)
        start_response("404 Not Found", _PLAIN)
        return [b"there are /metrics, /healthz and /readyz\n"]

    def _ready(self, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            self._watch.ping()
        except (redis.RedisError, EvalqError, OSError):
            start_response("503 Service Unavailable", _PLAIN)
            return [b"the ledger does not answer\n"]
        start_response("200 OK", _PLAIN)
        return [b"ready\n"]
