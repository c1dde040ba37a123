"""The exporter's HTTP server: /metrics, /healthz (the process lives), /readyz (the ledger answers)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import redis

from evalq.evalcore.errors import EvalqError
from evalq.workers.exporter.exposition import Page
from evalq.workers.monitor.watcher import Watch
from evalq.workers.servers.listening import Listening
from evalq.workers.settings import Settings

__all__ = ["Exporter"]

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]


class _Server(Listening, WSGIServer):
    def server_bind(self) -> None:
        """And say where it is to who answers."""
        super().server_bind()
        self.setup_environ()


class _Quiet(WSGIRequestHandler):
    timeout = 30
    """Seconds that a client may take for its request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        """Nothing: a scrape every few seconds is not worth a line."""


class Exporter:
    """The server, bound when made; ``port`` is the one it got, where 0 was asked for, ``netloc`` host and port."""

    def __init__(self, settings: Settings, bind: str, port: int) -> None:
        """Raises OSError when the address cannot be bound."""
        # A ledger that hangs has to be reported before Prometheus stops waiting for the answer.
        self._watch = Watch(settings, unacked=True, patience=settings.connect_seconds)
        self._page = Page(self._watch.look, settings.max_series, settings.ledger_name or settings.ledger_address.where)
        self._server = _Server((bind, port), _Quiet)
        self._server.set_app(self._answer)
        self.netloc, self.port = self._server.netloc, self._server.server_port

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
