"""The address of a server, read once from its URL: every client is given its arguments from here, and none a URL.

A URL has ``scheme://[user[:password]@]host[:port][/database]``, or ``unix://[user:password@]/path[?db=N]``. Two client
libraries (redis-py, kombu) would read the rest of it, and some of this, in two ways; what is not in `read_address` is
refused. Nothing here reaches a server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, NoReturn
from urllib.parse import quote, unquote_to_bytes

import msgspec

from evalq.evalcore.errors import ConfigError

_SCHEMES: Mapping[str, str] = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
    "unix": "unix",
    "redis+socket": "unix",
    "amqp": "amqp",
    "pyamqp": "amqp",
    "amqps": "amqps",
}
"""Schemes that people write, and the one of each that is meant."""
_PORTS: Mapping[str, int] = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}
_FILES: Mapping[str, str] = {"ca": "ssl_ca_certs", "certificate": "ssl_certfile", "key": "ssl_keyfile"}
_NAMES: Mapping[str, str] = {"user": "user", "password": "password", "db": "database"}
_CHECKED = {"required": True, "optional": True, "none": False}  # a client checks as much for optional as for required
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HOST = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_LONGEST_SOCKET = 107  # of Linux; other systems have room for fewer
_HIDDEN = "***"


class Tls(msgspec.Struct, frozen=True):
    """How a TLS server is checked: by the authority in ``ca`` (a file; empty: the system's), and for its name.

    ``certificate`` and ``key`` are files with the client's own.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    checked: bool = True
    name_checked: bool = True

    def options(self) -> dict[str, str]:
        """As a URL has them; what is as usual is left out."""
        files = {name: getattr(self, field) for field, name in _FILES.items()}
        found = {name: file for name, file in files.items() if file}
        if not self.checked:
            found["ssl_cert_reqs"] = "none"
        elif not self.name_checked:
            found["ssl_check_hostname"] = "false"
        return found


class Address(msgspec.Struct, frozen=True):
    """Where a server is and how it is asked. ``str()`` of it is its URL with each password as ``***``.

    ``scheme`` is redis, rediss, unix, amqp or amqps; ``path`` is that of a unix socket, ``host`` and ``port`` are those
    of all others. ``db`` is a Redis database, ``vhost`` a virtual host of RabbitMQ.
    """

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""
    db: int = 0
    vhost: str = ""
    user: str = ""
    password: str = ""
    tls: Tls | None = None

    @property
    def is_redis(self) -> bool:
        """Whether the server speaks the Redis protocol."""
        return self.scheme in ("redis", "rediss", "unix")

    @property
    def location(self) -> tuple[object, ...]:
        """What two addresses have in common that lead to the same data, whoever asks."""
        return (self.is_redis, self.host.lower(), self.port, self.path, self.db, self.vhost)

    @property
    def where(self) -> str:
        """What its URL says of where the server is, and of which part of it: enough for a label."""
        if self.path:
            return quote(self.path) + (f"?db={self.db}" if self.db else "")
        host = f"[{quote(self.host, safe=':.')}]" if ":" in self.host else self.host
        inside = str(self.db) if self.is_redis else quote(self.vhost, safe="")
        return f"{host}:{self.port}/{inside}"

    def __str__(self) -> str:
        # A name without a password may be one: ``redis://secret@host`` for ``redis://:secret@host``.
        user = f"{quote(self.user, safe='')}:{_HIDDEN}@" if self.password else f"{_HIDDEN}@" if self.user else ""
        options = self.tls.options() if self.tls else {}
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items())
        return f"{self.scheme}://{user}{self.where}{'?' if query else ''}{query}"

    __repr__ = __str__


@lru_cache(maxsize=32)
def read_address(url: str) -> Address:
    """The server's address. Raises ConfigError, without any part of ``url`` that may be a password."""
    scheme, sep, rest = url.partition("://")
    means = _SCHEMES.get(scheme.lower()) if sep else None
    if means is None:
        raise ConfigError(
            f"{_shown(scheme) if sep else _HIDDEN}: unknown kind of URL; "
            "use redis://, rediss://, unix:///path, amqp:// or amqps://"
        )
    return _UrlReader(scheme.lower(), means).address(rest)


def _shown(scheme: str) -> str:
    return f"{scheme}://{_HIDDEN}" if re.fullmatch(r"[a-zA-Z+-]{1,20}", scheme) else _HIDDEN


class _UrlReader:
    """What stands behind the scheme of one URL, taken apart."""

    def __init__(self, scheme: str, means: str) -> None:
        self._scheme = scheme
        self._means = means

    def address(self, rest: str) -> Address:
        """Raises ConfigError."""
        if re.search(r"[\x00-\x20\x7f#]", rest):
            self._refuse("it has a blank, a control character or '#'; write them as %20 or %23")
        before, _, query = rest.partition("?")
        netloc, slash, path = before.partition("/")
        if "@" in query or ("@" in path and not (self._means == "unix" and not netloc)):
            self._refuse("an '@' stands behind the first '/' or '?'; in a password write these as %40, %2F and %3F")
        user, _, where = netloc.rpartition("@")
        found = self._socket(where, slash + path) if self._means == "unix" else self._network(where, path)
        options = self._options(query)
        name, password = (self._text(part) for part in user.partition(":")[::2])
        found |= {"user": name, "password": password}
        for key, option in (("user", "username"), ("password", "password")):
            self._once(found, key, options.pop(option, ""))
        if self._means in ("rediss", "amqps"):
            found["tls"] = self._tls(options)
        if self._means in ("redis", "rediss", "unix"):
            for option in ("db", "virtual_host"):
                if option in options:
                    self._once(found, "db", self._database(options.pop(option)))
        if options:
            self._refuse_option(next(iter(options)))
        return Address(self._means, **found)

    def _socket(self, host: str, path: str) -> dict[str, Any]:
        if host or path in ("", "/"):
            self._refuse("the path of a socket begins with '/': unix:///path")
        path = self._text(path)
        if len(path.encode()) > _LONGEST_SOCKET:
            self._refuse(f"the path of a socket may have {_LONGEST_SOCKET} bytes in UTF-8, and this has more")
        return {"path": path}

    def _network(self, where: str, path: str) -> dict[str, Any]:
        found = re.fullmatch(r"(\[.*\]|[^:\[\]]*)(?::([0-9]*))?", where)
        if found is None:
            self._refuse(
                "behind its host is no port; write an IPv6 address in brackets ([::1]), and : in a password as %3A"
            )
        port = int(found[2] or _PORTS[self._means])
        if not 0 < port < 1 << 16:
            self._refuse("its port is none from 1 to 65535")
        place = {"host": self._host(self._text(found[1])) or "localhost", "port": port}
        if self._means in ("amqp", "amqps"):
            return place | {"vhost": self._text(path) or "/"}
        inside = path.removesuffix("/")
        return place | ({"db": self._database(inside)} if inside else {})

    def _host(self, host: str) -> str:
        if host.startswith("["):
            try:
                return str(IPv6Address(host[1:-1]))
            except ValueError:
                self._refuse("what stands in brackets is no IPv6 address")
        if host and not _HOST.fullmatch(host):
            self._refuse("its host has characters that no host's name has")
        return host

    def _options(self, query: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in query.split("&") if query else []:
            name, _, value = part.partition("=")
            if not value or name in found:
                self._refuse_option(name, "without a value" if not value else "given twice")
            found[name] = self._text(value.replace("+", " "))
        return found

    def _tls(self, options: dict[str, str]) -> Tls:
        files = {field: options.pop(name, "") for field, name in _FILES.items()}
        checked = self._choice(options, "ssl_cert_reqs", _CHECKED)
        name_checked = self._choice(options, "ssl_check_hostname", _YES_NO)
        if files["key"] and not files["certificate"]:
            self._refuse("it has ssl_keyfile, and no ssl_certfile")
        return Tls(**files, checked=checked, name_checked=checked and name_checked)

    def _choice(self, options: dict[str, str], name: str, choices: Mapping[str, bool]) -> bool:
        value = options.pop(name, next(iter(choices))).lower().removeprefix("cert_")
        if value not in choices:
            self._refuse(f"{name} is none of {', '.join(choices)}")
        return choices[value]

    def _once(self, found: dict[str, Any], key: str, value: Any) -> None:
        """Take what an option says, which must not contradict what stands before."""
        if value != "" and found.get(key, value) not in ("", value):
            self._refuse(f"it has two different values for the {_NAMES[key]}")
        if value != "":
            found[key] = value

    def _database(self, text: str) -> int:
        if not _NUMBER.fullmatch(text):
            self._refuse("its database is no whole number from 0")
        return int(text)

    def _text(self, text: str) -> str:
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeError:
            self._refuse("what its % stand for is not text in UTF-8")

    def _refuse_option(self, name: str, why: str = "") -> NoReturn:
        shown = repr(name) if re.fullmatch(r"[a-z][a-z_]{0,40}", name) else "an option"
        if why:
            self._refuse(f"{shown} is {why}")
        if name in (*_FILES.values(), "ssl_cert_reqs", "ssl_check_hostname"):
            self._refuse(f"{shown} belongs to rediss:// and amqps:// alone")
        self._refuse(f"evalq knows no {shown} of a server's URL; leave it out (times and limits are settings)")

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"{_shown(self._scheme)}: not a URL of a server: {why}")
