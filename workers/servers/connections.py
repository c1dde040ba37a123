"""Reaching a Redis or Valkey by its URL, and telling why it cannot be reached."""

from __future__ import annotations

import socket
import ssl
import sys
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from evalq.evalcore.errors import BrokerUnreachable, ConfigError, EvalqError, ServerRefused
from evalq.workers.servers.errors import explained
from evalq.workers.servers.urls import is_redis, redacted, respelled
from evalq.workers.settings import Settings

__all__ = ["KEEPALIVE", "connect", "probe"]

# A peer that is cut off (packets dropped, not refused) is noticed within about 15 s, on idle connections too.
_PROBES = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 3, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 15_000}
KEEPALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, name): value for name, value in _PROBES.items() if hasattr(socket, name)
    },
}


class _Pool(redis.ConnectionPool):
    """Connections of which none is used again that was left between a command and its answer.

    Ctrl-C comes at any line of the client's code. What is sent on such a connection next would get the answer of the
    command before: the pool asks whether unread data is there, and an answer may still be under way.
    """

    def release(self, connection: Any) -> None:
        """Take a connection back; where an interrupt ends the command, as a closed one."""
        # Called from a `finally`, in which what ends the block is the exception at hand. Errors of the server are
        # answers that were read to their end, and those of the connection have closed it.
        ending = sys.exc_info()[1]
        if ending is not None and not isinstance(ending, Exception):
            connection.disconnect()
        super().release(connection)


def _told_of_itself() -> dict[str, Any]:
    """What redis-py tells the server of itself: else it looks its own version up in its metadata for each connection,
    which takes 3 ms."""
    try:
        from redis.driver_info import DriverInfo
    except ImportError:  # before redis-py 7
        return {"lib_version": redis.__version__}
    return {"driver_info": DriverInfo(lib_version=redis.__version__)}


def connect(url: str, settings: Settings, patience: float = 30.0, *, again: bool = True) -> redis.Redis:
    """A client of the Redis or Valkey at ``url`` that was reached once; each answer may take ``patience`` seconds.

    Without ``again`` a command that fails is not tried again by the client itself. A server that answers, but can do
    no work just now (it is loading, say), is reached.
    Raises BrokerUnreachable when nothing answers within ``connect_seconds``, ServerRefused for a wrong password or
    missing rights, ConfigError for a URL of another kind.
    """
    # Asked once before use, so that a wrong host or password is reported here and not by whichever command comes first.
    trouble = probe(url, settings, min(patience, settings.connect_seconds))
    if isinstance(trouble, ServerRefused) or (trouble is not None and not _answered(trouble.__cause__)):
        raise trouble
    return _client(url, settings, patience, again=again)


def probe(url: str, settings: Settings, seconds: float) -> EvalqError | None:
    """Why the Redis or Valkey at ``url`` cannot be worked with now; None when it answers in time.

    Raises ConfigError for a URL of another kind.
    """
    client = _client(url, settings, seconds, again=False)
    try:
        client.ping()
    except TypeError as error:  # a parameter of the URL that the client does not know
        raise ConfigError(f"{redacted(url)}: not a URL of a server: {error}") from None
    except (redis.RedisError, OSError) as error:
        trouble = explained(error, f"the server at {redacted(url)}")
        if isinstance(trouble, BrokerUnreachable) and not _answered(error):
            trouble = BrokerUnreachable(_unreached(error, redacted(url)))
        trouble.__cause__ = error
        return trouble
    finally:
        client.close()
    return None


def _unreached(error: BaseException, shown: str) -> str:
    """That no server could be talked to at the URL that is ``shown``, and why."""
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        # It is there, and asking it again makes nothing better; what Python accepts depends on its version, too.
        return f"the certificate of the server at {shown} is not accepted: {error} (see SECURITY.md on rediss://)"
    return f"no server answers at {shown}: {error}"


def _answered(error: BaseException | None) -> bool:
    """Whether it was the server itself that said what is wrong."""
    away = (redis.ConnectionError, redis.TimeoutError, OSError)
    return isinstance(error, redis.BusyLoadingError) or not isinstance(error, away)


def _client(url: str, settings: Settings, patience: float, *, again: bool) -> redis.Redis:
    if not is_redis(url):
        raise ConfigError(f"{redacted(url)}: the ledger needs Redis or Valkey; with another broker give --ledger too")
    plain = respelled(url, {"redis+socket": "unix", "valkey": "redis", "valkeys": "rediss"})
    options: dict[str, Any] = {} if plain.startswith("unix") else dict(KEEPALIVE)
    if not again:
        options["retry"] = Retry(NoBackoff(), 0)
    try:
        pool = _Pool.from_url(
            plain,
            socket_timeout=patience,
            socket_connect_timeout=min(patience, settings.connect_seconds),
            health_check_interval=10,
            **_told_of_itself(),
            **options,
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{redacted(url)}: not a URL of a server: {error}") from None
    return redis.Redis.from_pool(pool)
