"""A server's URL is read once: both client libraries go to one place, and nobody is shown a password."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.errors import ConfigError
from evalq.workers.address import Address, Tls, read_address
from evalq.workers.broker.transport import make_app
from evalq.workers.servers.connections import arguments, connect
from evalq.workers.settings import Settings, load_settings

SECRET = "hunter2"  # noqa: S105 - made up


def _at(scheme: str, *, word: str = "", **fields: Any) -> Address:
    return Address(scheme, **fields, password=word)


def _redis(**fields: Any) -> Address:
    return _at("redis", **{"host": "localhost", "port": 6379, **fields})


READ = {
    "redis://": _redis(),
    "redis://h": _redis(host="h"),
    "redis://h/": _redis(host="h"),
    "redis://h/3/": _redis(host="h", db=3),
    "redis://h:7/3": _redis(host="h", port=7, db=3),
    "redis://h?db=3": _redis(host="h", db=3),
    "redis://h/3?db=3": _redis(host="h", db=3),
    "redis:///3": _redis(db=3),
    "redis://h:/3": _redis(host="h", db=3),
    "REDIS://h": _redis(host="h"),
    "valkey://h": _redis(host="h"),
    "redis://[::1]:7/1": _redis(host="::1", port=7, db=1),
    "redis://[FE80::1%25eth0]": _redis(host="fe80::1%eth0"),
    "redis://me@h": _redis(host="h", user="me"),
    "redis://:a@b:c@h": _redis(host="h", word="a@b:c"),
    "redis://:a%3A%2F%2Fb%40@h": _redis(host="h", word="a://b@"),
    "redis://m%40e:100%25@h": _redis(host="h", user="m@e", word="100%"),
    "redis://:50%@h": _redis(host="h", word="50%"),
    "redis://h/0?username=me&password=a%26b+c": _redis(host="h", user="me", word="a&b c"),
    "unix:///run/s": _at("unix", path="/run/s"),
    "unix:///run/a@b": _at("unix", path="/run/a@b"),
    "unix:///run/s?db=3": _at("unix", path="/run/s", db=3),
    "redis+socket:///run/s?virtual_host=3": _at("unix", path="/run/s", db=3),
    "unix://me:pw@/run/a%20b%40c?db=1": _at("unix", path="/run/a b@c", db=1, user="me", word="pw"),
    "unix:///run/s?password=pw": _at("unix", path="/run/s", word="pw"),
    "rediss://h": _at("rediss", host="h", port=6379, tls=Tls()),
    "valkeys://h?ssl_cert_reqs=none": _at("rediss", host="h", port=6379, tls=Tls(checked=False, name_checked=False)),
    "rediss://h?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs=/c/a.crt&ssl_check_hostname=False": _at(
        "rediss", host="h", port=6379, tls=Tls(ca="/c/a.crt", name_checked=False)
    ),
    "amqp://": _at("amqp", host="localhost", port=5672, vhost="/"),
    "amqp://u:p@[::1]//": _at("amqp", host="::1", port=5672, vhost="/", user="u", word="p"),
    "pyamqp://h/%2F": _at("amqp", host="h", port=5672, vhost="/"),
    "amqps://h/a%20b": _at("amqps", host="h", port=5671, vhost="a b", tls=Tls()),
}


@pytest.mark.parametrize(("url", "address"), READ.items())
def test_what_is_read(url: str, address: Address) -> None:
    """Also by whoever reads what is shown of it, but for the password."""
    found = read_address(url)
    assert found == address
    if not (found.user or found.password):
        assert read_address(str(found)) == found


@pytest.mark.parametrize("url", [url for url, address in READ.items() if address.is_redis])
def test_both_libraries_are_given_the_same(url: str) -> None:
    """redis-py's pool of the ledger, and the pools that kombu makes for a worker."""
    settings = Settings(broker=url)
    ledger = arguments(settings.ledger_address, settings.answer_seconds, settings.connect_seconds)
    with make_app(settings).connection_for_read() as connection:
        channel = connection.transport.Channel
        made = [_kombu(connection, channel, asynchronous) for asynchronous in (False, True)]
    for found in made:
        kind = found.pop("connection_class")
        assert issubclass(kind, ledger["connection_class"])
        assert {name: found[name] for name in ledger if name != "connection_class"} == {
            name: value for name, value in ledger.items() if name != "connection_class"
        }
    wanted = settings.broker_address
    assert (ledger["db"], ledger["username"] or "", ledger["password"] or "") == (
        wanted.db,
        wanted.user,
        wanted.password,
    )


def _kombu(connection: Any, channel: Any, asynchronous: bool) -> dict[str, Any]:
    """What kombu makes connections with, without a server: a channel connects as soon as it is made."""
    made = channel.__new__(channel)
    made.connection, made.max_connections = connection.transport, 10
    made.connection.client = connection
    return dict(made._connparams(asynchronous))


REFUSED = (
    "redis://h/0?socket_timeout=5",
    "redis://h/0?health_check_interval=3",
    "unix:///s?ssl_ca_certs=/c",
    "redis://h?ssl_ca_certs=/c",
    "redis://h?virtual_host=x",
    "redis://h/x",
    "redis://h/3/4",
    "redis://h/-1",
    "redis://h/٣",
    "redis://h/3?db=4",
    "redis://h?db=",
    "redis://h?db=1&db=1",
    "redis://h:0/0",
    "redis://h:99999/0",
    "redis://h:x/0",
    "redis://::1:6379/0",
    "redis://[::1/0",
    "redis://[h]/0",
    "redis://a,b/0",
    "redis://h/0#1",
    "unix://me:pw@/a@b",
    "redis://h /0",
    "redis://%ff@h",
    "unix://s",
    "unix://",
    "unix:///s?db=x",
    "unix:///s?db=1&virtual_host=2",
    "rediss://h?ssl_cert_reqs=perhaps",
    "rediss://h?ssl_keyfile=/k",
    "rediss://h?ssl_ciphers=x",
    "amqp://h?heartbeat=3",
    "amqp://a;amqp://b",
    "sentinel://h",
    "http://h",
    "h:6379",
    "",
)


@pytest.mark.parametrize("url", REFUSED)
def test_all_else_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every command, before anything is reached: it names the setting."""
    with pytest.raises(ConfigError):
        read_address(url)
    if url:
        for name in ("broker", "ledger"):
            with pytest.raises(ConfigError, match=f"^{name}: "):
                load_settings(**{"broker": "redis://h", name: url})


LEAKS = (
    "redis://:a://{}@h/0",
    "redis://me:{}/x@h/0",
    "redis://me:x?{}@h/0",
    "redis://me:x#{}@h/0",
    "redis://:{}",
    "redis://me:{}",
    "redis://{}@h/0",
    "redis://me:{}@[::1/0",
    "redis://me:{}@h:x/0",
    "redis://me:{}@h/x",
    "redis://me:{}@h/0?x=1",
    "redis://h/0?password={}",
    "redis://h/0?password={}&x=1",
    "redis://a:b@h/0?password={}",
    "redis://h/0?{}=1",
    "unix://me:{}@/run/s?db=3",
    "unix:///run/s?password={}",
    "amqp://me:{}@h//",
    "{}://h",
    "me:{}@h",
)


@pytest.mark.parametrize("form", LEAKS)
def test_no_password_is_shown(form: str) -> None:
    """Neither of an address, nor by the error of what is none."""
    assert SECRET not in _said(form.format(SECRET))


def _said(url: str) -> str:
    try:
        address = read_address(url)
    except ConfigError as error:
        return str(error)
    return f"{address} {address!r} {[address]}"


@given(st.text(min_size=1).filter(lambda text: text.isprintable()), st.text(max_size=5))
def test_any_password_comes_through(password: str, user: str) -> None:
    """Percent-encoded as a whole, as it is."""
    for url in ("redis://{}:{}@h:1/2", "unix://{}:{}@/s?db=2", "amqps://{}:{}@h"):
        address = read_address(url.format(quote(user, safe=""), quote(password, safe="")))
        assert (address.user, address.password) == (user, password)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    """Nothing else comes of a URL, whatever it is."""
    for url in (text, f"redis://{text}", f"unix://{text}", f"amqp://{text}"):
        try:
            address = read_address(url)
        except ConfigError:
            continue
        assert address.path.startswith("/") or 0 < address.port < 1 << 16


def test_one_server_is_known_by_two_spellings() -> None:
    """A ledger that is written otherwise than the broker is not apart from it; one in another database is."""
    for other in ("redis://H:6379/0", "redis://h/", "valkey://me:pw@h", "redis://h?db=0"):
        assert not Settings(broker="redis://h", ledger=other).ledger_apart
    for other in ("redis://h/1", "redis://h:1", "unix:///h"):
        assert Settings(broker="redis://h", ledger=other).ledger_apart


def test_the_ledger_must_be_redis() -> None:
    """A ledger on RabbitMQ is a configuration error that says what to add."""
    with pytest.raises(ConfigError, match="--ledger"):
        connect(read_address("amqp://h"), Settings())
