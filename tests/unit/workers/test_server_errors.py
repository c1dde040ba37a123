"""What an error of a server means: waited for, or refused; in words, with the server's name."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import amqp.exceptions as rabbit
import kombu.exceptions
import pytest
import redis
from redis._parsers.base import BaseParser

from evalq.evalcore.errors import BrokerUnreachable, ServerRefused
from evalq.workers.address import read_address
from evalq.workers.servers.connections import connect
from evalq.workers.servers.errors import PASSING, SERVER_ERRORS, explained
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.unit.workers.states import STATES


def _plain(client: Any) -> None:
    client.get("key")
    client.set("key", "value")


def _pipelined(client: Any) -> None:
    client.pipeline(transaction=False).get("key").set("key", "value").execute()


def _in_transaction(client: Any) -> None:
    client.pipeline(transaction=True).get("key").set("key", "value").execute()


def _scripted(client: Any) -> None:
    client.register_script("redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], 'value')")(keys=["key"])


WAYS = (_plain, _pipelined, _in_transaction, _scripted)


@pytest.mark.parametrize("code", STATES)
def test_a_state_that_passes_is_reported_by_name_however_the_server_was_asked(server: Server, code: str) -> None:
    """A real server in each state, asked by a command, a pipeline, a transaction and a script: one meaning."""
    with STATES[code](server):
        for way in WAYS:
            with pytest.raises(redis.RedisError) as raised:
                way(server.client)
            message = explained(raised.value, "the server at here")
            assert type(message) is BrokerUnreachable, way
            assert str(message).startswith(f"the server at here {PASSING[code]}: "), way
            assert "Command #" not in str(message)
            assert "user_script" not in str(message)


def test_scripts_that_are_flushed_as_they_are_sent_pass(server: Server) -> None:
    """The client sends a lost script once more, and what flushes them may come between that and its use."""
    with pytest.raises(redis.RedisError) as raised:
        server.client.evalsha("0" * 40, 0)
    message = explained(raised.value, "the server at here")
    assert type(message) is BrokerUnreachable
    assert str(message) == "the server at here has just forgotten its scripts (NOSCRIPT): No matching script"


@pytest.mark.parametrize("code", PASSING)
def test_every_code_of_the_table_passes_as_the_client_parses_it(code: str) -> None:
    """Also of states that a test cannot hold still (LOADING), or that only clusters have."""
    parsed = BaseParser.parse_error(f"{code} some words of the server")  # type: ignore[no-untyped-call]  # redis-py's
    message = explained(parsed, "x")
    assert (type(message), str(message)) == (BrokerUnreachable, f"x {PASSING[code]}: {_rest(code)}")


def _rest(code: str) -> str:
    kept = code in ("MISCONF", "NOREPLICAS", "BUSY", "UNBLOCKED")  # codes that redis-py does not know
    return f"{code} some words of the server" if kept else "some words of the server"


def _no_permission(server: Server) -> None:
    server.client.acl_setuser("weak", enabled=True, nopass=True, commands=["+ping"], keys=["*"])
    redis.Redis.from_url(f"redis://weak:x@127.0.0.1:{server.port}/0").set("key", "value")


def _no_permission_in_a_script(server: Server) -> None:
    server.client.acl_setuser("scripter", enabled=True, nopass=True, keys=["*"], commands=["+eval"])
    client = redis.Redis.from_url(f"redis://scripter:x@127.0.0.1:{server.port}/0")
    client.eval("return redis.call('RPUSH', KEYS[1], 'v')", 1, "key")


def _no_permission_in_a_script_of_redis(_: Server) -> None:
    raise redis.ResponseError("The user executing the script can't run this command or subcommand script: f00, on x")


def _other_node_of_a_cluster(_: Server) -> None:
    raise redis.ResponseError("Script attempted to access a non local key in a cluster node script: f00, on @user_x")


def _wrong_password(server: Server) -> None:
    redis.Redis.from_url(f"redis://nobody:x@127.0.0.1:{server.port}/0").ping()


def _wrong_type(server: Server) -> None:
    server.client.set("text", "value")
    server.client.hget("text", "field")


def _unknown(server: Server) -> None:
    server.client.execute_command("NOSUCH")


def _broken_script(server: Server) -> None:
    server.client.eval("return redis.call('GET')", 0)


@pytest.mark.parametrize(
    ("provoke", "mend"),
    [
        (_no_permission, "deploy/redis/users.acl"),
        (_no_permission_in_a_script, "deploy/redis/users.acl"),
        (_no_permission_in_a_script_of_redis, "deploy/redis/users.acl"),
        (_other_node_of_a_cluster, "one server, not a cluster's node"),
        (_wrong_password, "check user and password"),
        (_wrong_type, "a database of its own"),
        (_unknown, "Redis 7.0 or any Valkey"),
        (_broken_script, "the server's log"),
    ],
)
def test_what_does_not_pass_is_refused_with_what_to_do(
    server: Server, provoke: Callable[[Server], None], mend: str
) -> None:
    """Nobody waits for rights that are not given, or for a key of another program."""
    with pytest.raises(SERVER_ERRORS) as raised:
        provoke(server)
    message = explained(raised.value, "the server at here")
    assert type(message) is ServerRefused
    assert str(message).startswith("the server at here refuses")
    assert mend in str(message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (redis.ConnectionError("refused"), BrokerUnreachable),
        (redis.TimeoutError("timed out"), BrokerUnreachable),
        (ConnectionRefusedError(111, "refused"), BrokerUnreachable),
        (TimeoutError("timed out"), BrokerUnreachable),
        (kombu.exceptions.OperationalError("gone"), BrokerUnreachable),
        (rabbit.ConnectionForced("shutdown"), BrokerUnreachable),
        (rabbit.RecoverableConnectionError("socket closed"), BrokerUnreachable),
        (rabbit.AccessRefused("no"), ServerRefused),
        (rabbit.NotAllowed("no such virtual host"), ServerRefused),
        (rabbit.PreconditionFailed("inequivalent arg"), ServerRefused),
    ],
)
def test_a_lost_connection_passes_and_a_refusal_does_not(error: Exception, kind: type[Exception]) -> None:
    """Of sockets, redis, kombu and amqp alike."""
    assert type(explained(error, "x")) is kind


def test_kombu_s_wrapping_does_not_hide_what_the_server_said() -> None:
    """An OperationalError around rights that lack is no lost connection."""
    wrapped = kombu.exceptions.OperationalError("wrapped")
    wrapped.__cause__ = redis.exceptions.NoPermissionError("this user has no permissions")
    assert type(explained(wrapped, "x")) is ServerRefused


@pytest.mark.parametrize("code", ["BUSY", "MASTERDOWN"])
def test_a_server_that_answers_is_connected_to_whatever_it_says(server: Server, code: str) -> None:
    """It is there, and may do better soon: its user waits, as for one that becomes so later."""
    with STATES[code](server):
        connect(read_address(server.url), Settings()).close()


def test_a_user_without_rights_is_reported_when_connecting(server: Server) -> None:
    """No word of a server that does not answer."""
    server.client.acl_setuser("none", enabled=True, nopass=True, commands=["-@all"])
    with (
        pytest.raises(ServerRefused, match=r"users\.acl"),
        contextlib.closing(connect(read_address(f"redis://none:x@127.0.0.1:{server.port}/0"), Settings())),
    ):
        pass


def test_a_certificate_that_is_not_accepted_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a server: Python 3.13 refuses certificates that earlier ones accept, at an unchanged server."""

    def ping(_: redis.Redis) -> None:
        message = (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: CA cert does not include key usage extension"
        )
        raise redis.ConnectionError(f"Error 1 connecting to x:1. {message}.") from ssl.SSLCertVerificationError(
            1, message
        )

    monkeypatch.setattr(redis.Redis, "ping", ping)
    with pytest.raises(
        BrokerUnreachable, match=r"^the certificate of the server at rediss://x:1/0 is .*key usage.*SECUR"
    ):
        connect(read_address("rediss://x:1"), Settings())
