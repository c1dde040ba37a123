"""deploy/compose.yaml as docker-compose itself reads it, and what every service of it has to have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.deploy.programs import TOP, program, run

COMPOSE = TOP / "deploy" / "compose.yaml"
_UNITS = {"s": 1, "m": 60, "h": 3600}


def composed(file: Path = COMPOSE, **environment: str) -> dict[str, Any]:
    """The whole file with variables put in and merged, every profile included. Raises ValueError with its complaint."""
    command = (program("docker-compose"), "--file", file, "--project-directory", COMPOSE.parent, "--profile", "*")
    done = run(*command, "config", "--format", "json", **environment)
    if done.returncode != 0 or "level=warning" in done.stderr:
        raise ValueError(done.stderr)
    result: dict[str, Any] = msgspec.json.decode(done.stdout)
    return result


def seconds(text: str) -> float:
    """A duration as Compose writes it: 1m30s."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)([smh])", text))


def faults(config: dict[str, Any]) -> list[str]:
    """What a service lacks of being closed, bounded and watched."""
    return [f"{name}: {fault}" for name, service in config["services"].items() for fault in _of(service, config)]


def _of(service: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    if not service.get("read_only"):
        yield "its root file system can be written to"
    if service.get("cap_drop") != ["ALL"]:
        yield "it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it may gain privileges"
    if service.get("privileged") or service.get("network_mode") or service.get("pid"):
        yield "it shares the host's namespaces or rights"
    if not re.search(r":[\w.-]+$", service["image"]) or service["image"].endswith(":latest"):
        yield "its image has no version"
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    if not {"cpus", "memory", "pids"} <= set(limits):
        yield "its cores, memory or processes have no bound"
    if "build" not in service and "test" not in service.get("healthcheck", {}):
        yield "nothing checks its health"  # evalq's image checks its own
    if any(port.get("host_ip") != "127.0.0.1" for port in service.get("ports", [])):
        yield "it is reachable from other machines"
    if any(re.search(r"(?i)password(?!__FILE)|secret(?!s/)|token", key) for key in service.get("environment", {})):
        yield "a secret is in its environment"
    own_networks = [config["networks"][name] for name in service.get("networks", {})]
    if any("6379" in str(word) or "redis" in str(word) for word in service.get("command") or []) and not all(
        network.get("internal") for network in own_networks
    ):
        yield "the server is on a network that leads outside"
    yield from _of_worker(service)


def _of_worker(service: dict[str, Any]) -> Iterator[str]:
    given = service.get("environment", {})
    if "EVALQ_SOFT_SHUTDOWN_SECONDS" in given:
        soft = float(given["EVALQ_SOFT_SHUTDOWN_SECONDS"])
        if seconds(service.get("stop_grace_period", "10s")) < soft + 10:
            yield f"it is killed before its soft shutdown of {soft:.0f} s is over"
    if "EVALQ_CHUNK_MEGABYTES" in given:
        processes = int(service["command"][service["command"].index("--concurrency") + 1])
        needed = processes * (int(given["EVALQ_CHUNK_MEGABYTES"]) << 20)
        if needed >= int(service.get("deploy", {}).get("resources", {}).get("limits", {}).get("memory", 0)):
            yield "its chunks may take more memory than it has"
