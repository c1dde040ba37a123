"""Servers' URLs: one spelling for people, the one each library wants, and secrets kept out of messages.

Nothing here reaches a server, or needs a client of one.
"""

from __future__ import annotations

import re
import shlex

from evalq.evalcore.errors import ConfigError
from evalq.workers.settings import Settings

__all__ = ["SCHEME", "celery_url", "is_redis", "named", "redacted", "respelled", "server_options"]

_SECRET = re.compile(r"([?&]\w*password=)[^&#]*", re.IGNORECASE)
SCHEME = "evalq-redis"
"""The name of evalq's own transport in Celery's URLs; kombu's stays what it is for others in the same process."""
_REDIS = ("redis", "rediss", "unix", "redis+socket", "valkey", "valkeys")
_OTHER = ("amqp", "amqps", "pyamqp")


def is_redis(url: str) -> bool:
    """Whether the server at ``url`` speaks the Redis protocol. Raises ConfigError for a scheme evalq does not know."""
    scheme = url.partition("://")[0]
    if scheme not in _REDIS + _OTHER:
        raise ConfigError(f"{redacted(url)!r}: unknown kind of URL; use redis://, rediss://, unix:///path or amqp://")
    return scheme in _REDIS


def celery_url(url: str) -> str:
    """``url`` in Celery's spelling; a Redis is reached by way of `evalq.workers.broker.transport`."""
    if url.partition("://")[0] in ("rediss", "valkeys") and "ssl_cert_reqs=" not in url:
        # For kombu a URL that asks for no check of the server's certificate asks for no TLS at all.
        url += ("&" if "?" in url else "?") + "ssl_cert_reqs=required"
    plain, socket = {"redis", "rediss", "valkey", "valkeys"}, {"unix", "redis+socket"}
    return respelled(url, dict.fromkeys(plain, SCHEME) | dict.fromkeys(socket, f"{SCHEME}+socket"))


def redacted(url: str) -> str:
    """``url`` without its passwords, for messages and files."""
    scheme, sep, rest = _SECRET.sub(r"\1***", url).rpartition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}{sep}{name}:***@{place}" if at and colon else f"{scheme}{sep}{rest}"


def named(url: str) -> str:
    """What to call the server and database at ``url``: host:port/database or its socket, without user and password."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    if scheme in ("unix", "redis+socket"):
        return place
    host, _, database = place.partition("/")
    port = "" if re.search(r":\d+$", host) else ":6379"
    return f"{host}{port}/{database or 0}"


def server_options(settings: Settings) -> str:
    """``--broker`` (and ``--ledger``) for a command that a person is to run, URL in place of one with a password.

    Empty where no server is named.
    """
    urls = {"broker": settings.broker, "ledger": settings.ledger if settings.ledger_apart else ""}
    shown = {name: shlex.quote(url) if redacted(url) == url else "URL" for name, url in urls.items() if url}
    return " ".join(f"--{name} {url}" for name, url in shown.items())


def respelled(url: str, schemes: dict[str, str]) -> str:
    """``url`` with another scheme, where ``schemes`` has one for its own."""
    scheme, sep, rest = url.partition("://")
    return schemes.get(scheme, scheme) + sep + rest
