"""A viewer in this process, over runs that were made inline."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from evalq.producer.servers import Servers
from evalq.producer.viewing.server import Site, ViewServer
from evalq.producer.viewing.viewer import Viewer
from evalq.workers.settings import Settings
from tests.page.reading import Read
from tests.unit.comparing.conftest import Made


@dataclass(frozen=True)
class Got:
    """What the server answered."""

    status: int
    headers: dict[str, str]
    body: str
    base: str

    @property
    def page(self) -> Read:
        """Its elements and its text."""
        read = Read()
        read.feed(self.body)
        read.close()
        return read

    @property
    def text(self) -> str:
        """What is read on it."""
        return " ".join("".join(self.page.text).split())

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [(at["href"] or "").removeprefix(self.base) for _, at in self.page.tags if "href" in at]


class Browser:
    """Somebody who asks a server for pages; with the cookie that it was given."""

    def __init__(self, server: ViewServer) -> None:
        self.server = server
        self.cookie = ""

    def get(self, path: str, method: str = "GET", **headers: str) -> Got:
        """The answer; ``headers`` with underscores for dashes. Whoever has come in asks where they were led."""
        base = self.server.base if self.cookie else ""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        sent = {"Cookie": self.cookie, **{name.replace("_", "-"): value for name, value in headers.items()}}
        with contextlib.closing(connection):
            connection.request(method, base + path, headers=sent)
            answer = connection.getresponse()
            return Got(answer.status, dict(answer.getheaders()), answer.read().decode(), self.server.base)

    def enter(self) -> Browser:
        """Come in by the address that was printed."""
        token = self.server.address().partition("?")[2]
        self.cookie = self.get(f"/?{token}").headers["Set-Cookie"].partition(";")[0]
        return self


@contextlib.contextmanager
def viewing(*given: str, settings: Settings | None = None) -> Iterator[Browser]:
    """A browser before a viewer of the current folder, which it may not see yet."""
    with Servers(settings or Settings()) as servers, ViewServer(Site(Viewer(given, servers))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Browser(server)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def made(made: Made) -> Made:
    """Makes it where runs are looked for."""
    return lambda name, transcripts, **more: made(f"evalq-runs/{name}", transcripts, **more)
