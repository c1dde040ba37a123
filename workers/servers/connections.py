"""Reaching a Redis or Valkey at its address, explaining why it cannot be reached, and waiting for it."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, ServerRefused
from evalq.workers.address import Address
from evalq.workers.servers.errors import Unusable, explained
from evalq.workers.settings import Settings

# Notice a peer that is cut off (packets dropped, not refused) within about 15 s, on idle connections, too.
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
_KEEPALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value for name, value in _PROBES.items() if hasattr(socket, name)
    },
}


class _RedisPool(redis.ConnectionPool):
    """A pool that closes connections left between a command and its reply.

    Ctrl-C may come at any line of the client's code. The next command on such a connection would get the reply of the
    one before: the pool checks only for unread data, and the reply may still be under way.
    """

    def release(self, connection: Any) -> None:
        """Take a connection back; close it if an interrupt ended the command."""
        # Called from a `finally`, where the current exception is the one that ends the block. After an error of the
        # server, its reply was read completely; an error of the connection has closed it.
        ending = sys.exc_info()[1]
        if ending is not None and not isinstance(ending, Exception):
            connection.disconnect()
        super().release(connection)


def _driver_info() -> dict[str, Any]:
    """redis-py's own name and version for the server: otherwise it reads its metadata for each connection (3 ms)."""
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # before redis-py 7
        return {"lib_version": redis.__version__}
    return {"driver_info": DriverInfo(lib_version=redis.__version__)}


_MODES = {
    "cluster": "it is in cluster mode, and evalq needs one server that has all keys: set cluster-enabled to no",
    "sentinel": "it is a Sentinel, which keeps no data: give the address of the primary that it watches",
}
# An exporter with read-only rights takes its snapshots by EVAL_RO.
_NEEDED = "evalq needs Redis 7.0 or any Valkey"


def _usable(connection: Any) -> dict[str, str]:
    """Begin a connection as redis-py does, and check that evalq can use the server; returns the server's facts.

    At each connection, since an address may lead to another server than before. Raises Unusable.
    """
    try:
        connection.on_connect()
        reply = getattr(connection, "handshake_metadata", None) or _hello(connection)
    except redis.ResponseError as error:
        if re.search("unknown command.*HELLO", str(error), re.IGNORECASE):
            raise Unusable(f"it does not know HELLO, as no Redis before 6.0 does: {_NEEDED}") from error
        raise
    facts = {_text(name): _text(value) for name, value in reply.items()}
    mode, version = facts.get("mode", ""), facts.get("version", "")
    if mode in _MODES:
        raise Unusable(_MODES[mode])
    if facts.get("server") == "redis" and re.match(r"[0-6]\.", version):
        raise Unusable(f"it is Redis {version}: {_NEEDED}")
    return facts


def _primary(connection: Any) -> None:
    """The same, and refuse a replica. Not at each connection: a former primary may become it again, and workers must
    notice that at once. Raises ReadOnlyError, MasterDownError.
    """
    if _usable(connection).get("role", "master") != "master":
        # A replica that has lost its primary refuses this: it may become the primary soon.
        connection.send_command("PING")
        connection.read_response()
        raise redis.ReadOnlyError("evalq needs its primary")


def _hello(connection: Any) -> dict[Any, Any]:
    """The server's reply to HELLO, for versions of redis-py that do not keep it."""
    connection.send_command("HELLO")
    reply = connection.read_response()
    return reply if isinstance(reply, dict) else dict(zip(reply[0::2], reply[1::2], strict=True))


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def arguments(address: Address, answer_seconds: float, connect_seconds: float) -> dict[str, Any]:
    """Arguments of redis-py's connections, the same for the ledger and for kombu, so that both reach one server.

    Raises ConfigError for a server of another kind.
    """
    if not address.is_redis:
        raise ConfigError(f"{address}: the ledger needs Redis or Valkey; with another broker give --ledger too")
    given: dict[str, Any] = {
        "db": address.db,
        "username": address.user or None,
        "password": address.password or None,
        "socket_timeout": answer_seconds,
        "socket_connect_timeout": min(answer_seconds, connect_seconds),
        "health_check_interval": 10,
        "redis_connect_func": _usable,
        **_driver_info(),
    }
    if address.path:
        return given | {"connection_class": redis.UnixDomainSocketConnection, "path": address.path}
    given |= {"host": address.host, "port": address.port, **_KEEPALIVE}
    if address.tls is None:
        return given | {"connection_class": redis.Connection}
    tls = address.tls
    return given | {
        "connection_class": redis.SSLConnection,
        "ssl_cert_reqs": "required" if tls.checked else "none",
        "ssl_check_hostname": tls.name_checked,
        "ssl_ca_certs": tls.ca or None,
        "ssl_certfile": tls.certificate or None,
        "ssl_keyfile": tls.key or None,
    }


def connect(address: Address, settings: Settings, patience: float = 30.0, *, again: bool = True) -> redis.Redis:
    """A client of the Redis or Valkey at ``address``, after one probe; each reply may take ``patience`` seconds.

    Without ``again``, the client does not retry failed commands. A server that answers, but cannot work now (such as
    while it loads), passes the probe. Raises BrokerUnreachable if nothing answers within ``connect_seconds``, or a
    replica does; ServerRefused for a wrong password, missing rights or a server that evalq cannot use; ConfigError for
    a server of another kind.
    """
    # Probe before use, so that a wrong host or password is reported here and not by the first command.
    trouble = probe(address, settings, min(patience, settings.connect_seconds))
    cause = trouble.__cause__ if trouble is not None else None
    if trouble is not None and (isinstance(trouble, ServerRefused) or not _answered(cause) or _is_replica(cause)):
        raise trouble
    return _client(address, settings, patience, again=again)


def probe(address: Address, settings: Settings, seconds: float) -> EvalqError | None:
    """Why evalq cannot work with the Redis or Valkey at ``address`` now; None if it answers in time.

    Raises ConfigError for a server of another kind.
    """
    client = _client(address, settings, seconds, again=False, begin=_primary)
    try:
        client.ping()
    except (redis.RedisError, OSError) as error:
        trouble = explained(error, f"the server at {address}")
        if isinstance(trouble, BrokerUnreachable) and not _answered(error):
            trouble = BrokerUnreachable(_unreached(error, address))
        trouble.__cause__ = error
        return trouble
    finally:
        client.close()
    return None


def refuse_unusable(address: Address, settings: Settings) -> None:
    """Raise ServerRefused for a Redis or Valkey that evalq cannot use; ignore other errors of it."""
    trouble = probe(address, settings, settings.connect_seconds) if address.is_redis else None
    if trouble is not None and isinstance(trouble.__cause__, Unusable):
        raise trouble


def _unreached(error: BaseException, address: Address) -> str:
    """The message for a server that does not answer, with the reason."""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        # The server is there, and retrying does not help; what Python accepts depends on its version, too.
        return f"the certificate of the server at {address} is not accepted: {error} (see SECURITY.md on rediss://)"
    return f"no server answers at {address}: {error}"


def _answered(error: BaseException | None) -> bool:
    """Whether the server itself reported the error."""
    away = (redis.ConnectionError, redis.TimeoutError, OSError)
    return isinstance(error, redis.BusyLoadingError) or not isinstance(error, away)


def _is_replica(error: BaseException | None) -> bool:
    return isinstance(error, redis.ReadOnlyError)


def _client(
    address: Address, settings: Settings, patience: float, *, again: bool, begin: Callable[[Any], object] = _usable
) -> redis.Redis:
    given = arguments(address, patience, settings.connect_seconds) | {"redis_connect_func": begin}
    if not again:
        given["retry"] = Retry(NoBackoff(), 0)
    return redis.Redis.from_pool(_RedisPool(**given))


# -- lasting trouble: logged once, then every half minute, and when it is over ---------------------

AGAIN_SECONDS = 30.0
_POLL_SECONDS = 1.0


class Complaint:
    """One kind of trouble with one server."""

    def __init__(self, log: logging.Logger, server: str) -> None:
        """``server`` is the server's name in the log."""
        self._log = log
        self._server = server
        self._since: float | None = None
        self._logged_at = 0.0

    def report(self, error: BaseException) -> None:
        """Log an error, at first and then every AGAIN_SECONDS."""
        now = time.monotonic()
        if self._since is None or now - self._logged_at >= AGAIN_SECONDS:
            so_far = f", for {now - self._since:.0f} s now" if self._since is not None else ""
            self._logged_at = now
            self._log.warning("waiting: %s%s", explained(error, self._server), so_far)
        self._since = self._since or now

    def over(self) -> None:
        """Log that the trouble is over, if there was any."""
        if self._since is not None:
            self._log.warning("%s is back after %.0f s", self._server, time.monotonic() - self._since)
            self._since = None


def until_reached(settings: Settings, log: logging.Logger, wanted: Callable[[], bool]) -> bool:
    """Wait for the ledger's server while ``wanted``; returns whether it answers. Raises ServerRefused, ConfigError."""
    complaint = Complaint(log, f"the ledger at {settings.ledger_address}")
    while (trouble := probe(settings.ledger_address, settings, settings.connect_seconds)) is not None:
        if isinstance(trouble, ServerRefused):
            raise trouble
        if not wanted():
            return False
        complaint.report(trouble)
        time.sleep(_POLL_SECONDS)
    complaint.over()
    return True
