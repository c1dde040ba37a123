"""The exporter's HTTP server: /metrics, /healthz (the process lives), /readyz (the ledger answers)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import redis

from evalcore.errors import EvalqError
from workers.broker import Broker
from workers.connect import connect
from workers.exporter.page import Page
from workers.settings import Settings
from workers.snapshot import Snapshot, read_snapshot

__all__ = ["Exporter", "Watch"]

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]


class Watch:
    """Looks at the ledger; connects when first asked and stays so, since the client finds its way back by itself."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Any = None
        self._broker: Broker | None = None
        self._connecting = threading.Lock()

    def look(self, before: Snapshot | None = None) -> Snapshot:
        """One snapshot, from the one before. Raises redis.RedisError, EvalqError or OSError when a server is away."""
        client = self._connected()
        if not self._settings.ledger or self._settings.ledger == self._settings.broker:
            return read_snapshot(client, self._settings, unacked=True, before=before)
        if self._broker is None:
            self._broker = Broker(self._settings)
        return read_snapshot(client, self._settings, self._broker.lengths, before=before)

    def ping(self) -> None:
        """Raises what `look` raises, when the ledger does not answer."""
        self._connected().ping()

    def _connected(self) -> Any:
        with self._connecting:
            if self._client is None:
                self._client = connect(self._settings.ledger_url, self._settings)
            return self._client


class _ThreadedServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 30
    """Seconds that a client may take for its request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Nothing: a scrape every few seconds is no news."""


class Exporter:
    """The server, bound when made; ``port`` is the one it got, where 0 was asked for."""

    def __init__(self, settings: Settings, bind: str, port: int) -> None:
        """Raises OSError when the address cannot be had."""
        self._watch = Watch(settings)
        self._page = Page(self._watch.look, settings.max_series)
        self._server = make_server(bind, port, self._answer, _ThreadedServer, _Quiet)
        self.port = int(self._server.server_port)

    def serve(self) -> None:
        """Until interrupted, or `close` is called from elsewhere."""
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
