"""The address of a server, parsed once from its URL; clients get arguments made from it, never the URL.

A URL is ``scheme://[user[:password]@]host[:port][/database]``, or ``unix://[user:password@]/path[?db=N]``. The client
libraries (redis-py and kombu) interpret some parts of URLs differently, so `read_address` refuses every part that it
does not know. Nothing here connects to a server.
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
"""The accepted schemes, and the `Address.scheme` of each."""
_PORTS: Mapping[str, int] = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}
_FILES: Mapping[str, str] = {"ca": "ssl_ca_certs", "certificate": "ssl_certfile", "key": "ssl_keyfile"}
_NAMES: Mapping[str, str] = {"user": "user", "password": "password", "db": "database"}
_CHECKED = {"required": True, "optional": True, "none": False}  # for a client, optional and required are the same
_YES_NO = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HOST = re.compile(r"[\w.-]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_LONGEST_SOCKET = 107  # the limit of Linux, in bytes; other systems allow less
_HIDDEN = "***"


class Tls(msgspec.Struct, frozen=True):
    """How clients check a TLS server: by the certificate authority in the file ``ca`` ("": the system's), and its name.

    ``certificate`` and ``key`` are files with the client's own certificate and key.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    checked: bool = True
    name_checked: bool = True

    def options(self) -> dict[str, str]:
        """The options of a URL for these values; defaults are left out."""
        files = {name: getattr(self, field) for field, name in _FILES.items()}
        found = {name: file for name, file in files.items() if file}
        if not self.checked:
            found["ssl_cert_reqs"] = "none"
        elif not self.name_checked:
            found["ssl_check_hostname"] = "false"
        return found


class Address(msgspec.Struct, frozen=True):
    """The address of a server and how to log in. ``str()`` gives its URL with ``***`` for each password.

    ``scheme`` is redis, rediss, unix, amqp or amqps. A unix socket has a ``path``; all others have ``host`` and
    ``port``. ``db`` is the number of a Redis database, ``vhost`` a virtual host of RabbitMQ.
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
        """A key of the data behind the address: equal for two addresses of one server's database, whatever the user."""
        return (self.is_redis, self.host.lower(), self.port, self.path, self.db, self.vhost)

    @property
    def where(self) -> str:
        """The part of the URL without scheme, user and options; it serves as a label and has no secret."""
        if self.path:
            return quote(self.path) + (f"?db={self.db}" if self.db else "")
        host = f"[{quote(self.host, safe=':.')}]" if ":" in self.host else self.host
        inside = str(self.db) if self.is_redis else quote(self.vhost, safe="")
        return f"{host}:{self.port}/{inside}"

    def __str__(self) -> str:
        # A user without a password may be a misplaced password: ``redis://secret@host`` for ``redis://:secret@host``.
        user = f"{quote(self.user, safe='')}:{_HIDDEN}@" if self.password else f"{_HIDDEN}@" if self.user else ""
        options = self.tls.options() if self.tls else {}
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items())
        return f"{self.scheme}://{user}{self.where}{'?' if query else ''}{query}"

    __repr__ = __str__


@lru_cache(maxsize=32)
def read_address(url: str) -> Address:
    """The address that ``url`` names. Raises ConfigError; its message repeats no part that may be a password."""
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
    """Parses the part of one URL behind its scheme."""

    def __init__(self, scheme: str, means: str) -> None:
        self._scheme = scheme
        self._means = means

    def address(self, rest: str) -> Address:
        """The address in ``rest``, the URL without its scheme. Raises ConfigError."""
        if re.search(r"[\x00-\x20\x7f#]", rest):
            self._refuse("it has a blank, a control character or '#'; write a blank as %20, and '#' as %23")
        before, _, query = rest.partition("?")
        netloc, slash, path = before.partition("/")
        if "@" in query or ("@" in path and not (self._means == "unix" and not netloc)):
            self._refuse("an '@' follows the first '/' or '?'; in a password write these as %40, %2F and %3F")
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
            self._refuse(f"the path of a socket is longer than {_LONGEST_SOCKET} bytes in UTF-8")
        return {"path": path}

    def _network(self, where: str, path: str) -> dict[str, Any]:
        found = re.fullmatch(r"(\[.*\]|[^:\[\]]*)(?::([0-9]*))?", where)
        if found is None:
            self._refuse(
                "its host or port is malformed; write an IPv6 address in brackets ([::1]), and : in a password as %3A"
            )
        port = int(found[2] or _PORTS[self._means])
        if not 0 < port < 1 << 16:
            self._refuse("its port is not from 1 to 65535")
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
                self._refuse("the text in brackets is not an IPv6 address")
        if host and not _HOST.fullmatch(host):
            self._refuse("its host has characters that are not allowed in a host name")
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
            self._refuse("it has ssl_keyfile but no ssl_certfile")
        return Tls(**files, checked=checked, name_checked=checked and name_checked)

    def _choice(self, options: dict[str, str], name: str, choices: Mapping[str, bool]) -> bool:
        value = options.pop(name, next(iter(choices))).lower().removeprefix("cert_")
        if value not in choices:
            self._refuse(f"{name} is not one of {', '.join(choices)}")
        return choices[value]

    def _once(self, found: dict[str, Any], key: str, value: Any) -> None:
        """Set ``key`` from an option. Refuse the URL if an earlier part gives another value."""
        if value != "" and found.get(key, value) not in ("", value):
            self._refuse(f"it has two different values for the {_NAMES[key]}")
        if value != "":
            found[key] = value

    def _database(self, text: str) -> int:
        if not _NUMBER.fullmatch(text):
            self._refuse("its database is not a whole number from 0")
        return int(text)

    def _text(self, text: str) -> str:
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeError:
            self._refuse("its percent-encoded bytes are not UTF-8")

    def _refuse_option(self, name: str, why: str = "") -> NoReturn:
        shown = repr(name) if re.fullmatch(r"[a-z][a-z_]{0,40}", name) else "an option"
        if why:
            self._refuse(f"{shown} is {why}")
        if name in (*_FILES.values(), "ssl_cert_reqs", "ssl_check_hostname"):
            self._refuse(f"{shown} is only for rediss:// and amqps://")
        self._refuse(f"evalq does not know {shown}; leave it out (times and limits are settings)")

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"{_shown(self._scheme)}: not the URL of a server: {why}")
