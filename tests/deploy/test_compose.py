"""The compose file, held against docker-compose itself and against what this project asks of every service."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.composed import COMPOSE, composed, faults
from tests.deploy.programs import TOP

Config = dict[str, Any]


@pytest.fixture(scope="module")
def config() -> Config:
    """The file as it is."""
    return composed()


def test_every_service_is_closed_bounded_and_watched(config: Config) -> None:
    """docker-compose accepts it without a warning; seven services, none with a fault."""
    assert set(config["services"]) == {"redis", "worker", "calls", "exporter", "prometheus", "grafana", "producer"}
    assert faults(config) == []


@pytest.mark.parametrize(
    ("good", "bad", "complaint"),
    [
        ("    user: valkey\n", "    usr: valkey\n", "usr"),
        ("condition: service_healthy}", "condition: service_well}", "condition"),
        ("  grafana:\n    <<", "  grafana:\n    depends_on: [nobody]\n    <<", "depends_on"),
        ("      - redis:/data", "      - rediss:/data", "undefined volume"),
        ("networks: [queue, watch]", "networks: [queue, wach]", "undefined network"),
        ("secrets: [{source: exporter,", "secrets: [{source: exportr,", "undefined secret"),
        ('"127.0.0.1:${GRAFANA_PORT:-3000}:3000"', '"127.0.0.1:high:3000"', "hostPort"),
        ("stop_grace_period: 90s", "stop_grace_period: 90 seconds", "duration"),
        ("      interval: 5s\n", "      interval: [5s]\n", "interval"),
    ],
)
def test_docker_compose_finds_what_is_broken(good: str, bad: str, complaint: str, tmp_path: Path) -> None:
    """A copy with one mistake is refused, and the complaint is about that mistake."""
    text = COMPOSE.read_text()
    assert good in text
    broken = tmp_path / "compose.yaml"
    broken.write_text(text.replace(good, bad, 1))
    with pytest.raises(ValueError, match=complaint):
        composed(broken)


def _published(config: Config) -> None:
    config["services"]["grafana"]["ports"][0]["host_ip"] = "192.0.2.1"


def _impatient(config: Config) -> None:
    config["services"]["calls"]["stop_grace_period"] = "1m0s"


def _greedy(config: Config) -> None:
    config["services"]["worker"]["environment"]["EVALQ_CHUNK_MEGABYTES"] = "2048"


def _named(config: Config) -> None:
    config["services"]["grafana"]["environment"] |= {"GF_SECURITY_ADMIN_PASSWORD": "admin"}


def _outside(config: Config) -> None:
    config["services"]["redis"]["networks"]["outside"] = None


def _newest(config: Config) -> None:
    config["services"]["prometheus"]["image"] = "prom/prometheus"


def _without(service: str, key: str) -> Callable[[Config], None]:
    return lambda config: config["services"][service].pop(key)


@pytest.mark.parametrize(
    "damage",
    [
        *(_without("worker", key) for key in ("read_only", "cap_drop", "security_opt", "deploy", "stop_grace_period")),
        _without("redis", "healthcheck"),
        *(_published, _impatient, _greedy, _named, _outside, _newest),
    ],
)
def test_the_rules_find_what_is_missing(config: Config, damage: Callable[[Config], None]) -> None:
    """Each of the rules is broken in a copy, and each is noticed."""
    broken = copy.deepcopy(config)
    damage(broken)
    assert faults(broken) != []


def test_what_is_mounted_is_in_the_tree(config: Config) -> None:
    """But for inputs, targets and secrets, which are the user's."""
    for name, service in config["services"].items():
        for mount in service.get("volumes", []):
            if mount["type"] == "bind" and Path(mount["source"]).name not in ("data", "targets"):
                assert Path(mount["source"]).exists(), f"{name}: {mount['source']}"
            if mount["type"] == "bind":
                assert mount["read_only"], f"{name} may write to {mount['source']}"
                assert Path(mount["source"]).is_relative_to(TOP)
