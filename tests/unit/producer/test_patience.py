"""Waiting for servers: said within seconds, ended in time, and not confused with work or with a refusal."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from evalq.evalcore.errors import BrokerUnreachable, ServerRefused, WorkersLost
from evalq.producer.driving import retries
from evalq.producer.driving.retries import ServerRetry
from evalq.workers.address import read_address
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import PASSING
from evalq.workers.settings import Settings
from tests.awake import awake
from tests.integration.harness import PATIENCE, Server, running_server, wait_until
from tests.unit.workers.states import STATES


class Heard:
    """Records the messages that it gets, and when, by a ``clock``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.at: list[float] = []
        self.waiting_for: list[tuple[str, float, float | None]] = []
        self.over: list[str] = []

    def waiting(self, what: str, since: float, limit: float | None) -> None:
        self.at.append(self._clock())
        self.waiting_for.append((what, since, limit))

    def recovered(self, what: str, after: float) -> None:
        self.over.append(what)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that a test may stop."""
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started


def _settings(server: Server, seconds: float) -> Settings:
    return Settings(broker=server.url, patience_seconds=seconds)


def _writes(client: redis.Redis) -> bool:
    client.get("key")
    client.set("key", "value")
    return True


@pytest.mark.parametrize("code", STATES)
def test_a_state_of_a_server_is_reported_by_name_and_waited_out(server: Server, code: str) -> None:
    """Within 5 s it is said what is waited for, and for how long; when it is over, that is said and the step taken."""
    settings = _settings(server, 60)
    client = connect(read_address(server.url), settings, again=False)
    with awake() as clock:
        heard = Heard(clock)
        patience = ServerRetry(settings, heard)
        with patience.reporting():
            done: list[bool] = []
            with STATES[code](server):
                thread = threading.Thread(target=lambda: done.append(patience(lambda: _writes(client))))
                began = clock()
                thread.start()
                wait_until(lambda: heard.waiting_for, "it is told")
                assert not done
            thread.join(PATIENCE)
    assert done == [True]
    (message,) = heard.waiting_for
    assert message[0].startswith(f"the server at {server.url} {PASSING[code]}")
    assert heard.at[0] - began < 5
    assert message[2] == 60
    assert heard.over == [message[0]]


def test_a_stopped_server_is_reported_while_the_step_still_stands(server: Server) -> None:
    """It neither answers nor refuses: the step is in a system call for much longer than 5 s, and ends when it may."""
    settings = _settings(server, 8)
    client = connect(read_address(server.url), settings, patience=8, again=False)
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with awake() as clock:
            heard = Heard(clock)
            patience = ServerRetry(settings, heard)
            with (
                patience.reporting(),
                pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1.* does not answer.*patience_seconds"),
            ):
                patience(lambda: _writes(client))
            assert clock() < 8 + 5
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    assert heard.at[0] < 5
    assert "no server answers" in heard.waiting_for[0][0]


def test_a_server_that_is_gone_ends_the_waiting_in_time(server: Server) -> None:
    """Exit code 3 after patience_seconds, with the server's address and how long it was waited for."""
    settings = _settings(server, 3)
    client = connect(read_address(server.url), settings, again=False)
    server.kill()
    began = time.monotonic()
    with (
        awake() as clock,
        pytest.raises(BrokerUnreachable, match=rf"127.0.0.1:{server.port}.*patience_seconds") as raised,
    ):
        ServerRetry(settings)(lambda: _writes(client))
    assert raised.value.exit_code == 3
    assert time.monotonic() - began >= 3
    assert clock() < 3 + 4


def test_a_long_step_is_not_taken_for_a_server_that_is_away(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers meanwhile, so nothing is reported."""
    monkeypatch.setattr(retries, "PROBE_SECONDS", PATIENCE)  # be it late, on a busy machine
    heard = Heard()
    patience = ServerRetry(_settings(server, 60), heard)
    ended = threading.Event()
    with patience.reporting():
        assert patience(lambda: not ended.wait(4))
    assert not heard.waiting_for
    assert not heard.over


def test_a_blip_is_not_reported(server: Server) -> None:
    """What is over at the second try needs no words."""
    heard = Heard()
    patience = ServerRetry(_settings(server, 60), heard)
    failures = [redis.ConnectionError("once")]

    def step() -> bool:
        if failures:
            raise failures.pop()
        return True

    with patience.reporting():
        assert patience(step)
    assert not heard.waiting_for
    assert not heard.over


def test_a_refusal_is_not_waited_for(server: Server) -> None:
    """Rights that lack end a command at once, in words, with exit code 3."""
    server.client.acl_setuser("weak", enabled=True, nopass=True, commands=["+ping", "+get"], keys=["*"])
    weak = redis.Redis.from_url(f"redis://weak:x@127.0.0.1:{server.port}/0")
    with awake() as clock, pytest.raises(ServerRefused, match="users") as raised:
        ServerRetry(_settings(server, 60))(lambda: _writes(weak))
    assert raised.value.exit_code == 3
    assert clock() < 3


def test_a_step_that_goes_on_in_part_is_reported_and_limited_too(server: Server) -> None:
    """A driver on a full server goes on collecting: that it gets no room is said, and ends in time."""
    heard = Heard()
    patience = ServerRetry(_settings(server, 4), heard)

    def step() -> bool:
        time.sleep(0.05)
        patience.in_part(redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."))
        return False

    with awake() as clock, patience.reporting(), pytest.raises(BrokerUnreachable, match="is full"):
        wait_until(lambda: patience(step), "it ends")
    assert clock() < 10
    assert "is full (OOM)" in heard.waiting_for[0][0]


def test_room_again_is_reported(server: Server) -> None:
    """A step that is no longer held ends the waiting."""
    heard = Heard()
    patience = ServerRetry(_settings(server, 60), heard)

    def step() -> bool:
        if not heard.waiting_for:
            patience.in_part(redis.OutOfMemoryError("full"))
        return True

    with patience.reporting():
        wait_until(lambda: patience(step) and heard.over, "it is over")


def test_a_process_that_is_lost_is_not_waited_for(server: Server) -> None:
    """What the command knows of its own processes ends the waiting at once."""
    settings = _settings(server, 60)
    client = connect(read_address(server.url), settings, again=False)
    server.kill()

    def check() -> None:
        if tries:
            raise WorkersLost("gone")

    tries: list[int] = []

    def step() -> bool:
        tries.append(1)
        return _writes(client)

    with pytest.raises(WorkersLost):
        ServerRetry(settings, check=check)(step)


def test_a_last_step_is_left_out_where_nobody_answers(server: Server) -> None:
    """Ctrl-C while the server is away: nothing is raised, and nothing waited for."""
    settings = _settings(server, 60)
    patience, client = ServerRetry(settings), connect(read_address(server.url), settings, again=False)
    assert patience.once(lambda: _writes(client))
    server.kill()
    with awake() as clock:
        assert not patience.once(lambda: _writes(client))
    assert clock() < 5
