"""The registry: which agents there are and the level each one is held to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.errors import ConfigError

__all__ = ["Agent", "default_agents", "load_agents"]

_LEVELS = {name.lower(): name for name in ("Full", "Enhanced", "Light")}
_DEFAULT = Path(__file__).with_name("agents.yaml")


class Agent(Params):
    """An agent under evaluation: its ``id`` as golden sets name it, and its ``level``."""

    id: str
    level: str


@cache
def default_agents() -> tuple[Agent, ...]:
    """The twenty agents of the registry that comes with evalq."""
    return tuple(Agent(**entry) for entry in load_agents(_DEFAULT))


def load_agents(path: str | Path) -> list[dict[str, str]]:
    """The agents of a registry file as plain params. Raises ConfigError with file and key.

    ``agents`` maps an id to a level, or, as the agents' own registry does, to an object with ``vs_level`` and perhaps
    ``legacy_id``. Its other keys say nothing of levels. An agent of it without a ``vs_level`` is held to none.
    """
    data = load_mapping(path)
    agents: Mapping[Any, Any] | Any = data.get("agents")
    if not isinstance(agents, dict) or not agents:
        raise ConfigError(f"{path}: agents: must be a mapping of agent ids to levels")
    if all(isinstance(entry, dict) for entry in agents.values()):
        return _described(path, agents)
    unknown = sorted(set(data) - {"agents"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]}: unknown key (known here: agents)")
    for agent, level in agents.items():
        # To YAML an id such as 02 is a number, and a level such as `on` a boolean.
        if not isinstance(agent, str) or not isinstance(level, str):
            raise ConfigError(f"{path}: agents.{agent}: both the id and the level must be text")
    return [{"id": agent, "level": level} for agent, level in agents.items()]


def _described(path: str | Path, agents: Mapping[Any, Mapping[str, Any]]) -> list[dict[str, str]]:
    """The agents of a registry that describes each, under its id and, where it had another one, under that."""
    found: dict[str, str] = {}
    for agent, entry in agents.items():
        level, legacy = entry.get("vs_level"), entry.get("legacy_id")
        if level is None:
            continue
        if not isinstance(agent, str) or not isinstance(level, str):
            raise ConfigError(f"{path}: agents.{agent}.vs_level: both the id and the level must be text")
        if not isinstance(legacy, str | int | None) or isinstance(legacy, bool):
            raise ConfigError(f"{path}: agents.{agent}.legacy_id: must be text such as '02', or null")
        names = [agent]
        if legacy is not None:
            # "A2-theoretical-framework-architect" was "02-theoretical-framework-architect": golden sets still say so.
            number = f"{legacy:02d}" if isinstance(legacy, int) else legacy
            names.append("-".join(filter(None, (number, agent.partition("-")[2]))))
        for name in names:
            if found.setdefault(name, _LEVELS.get(level.lower(), level)) != _LEVELS.get(level.lower(), level):
                raise ConfigError(f"{path}: agents.{agent}: {name} is named twice, with different levels")
    if not found:
        raise ConfigError(f"{path}: agents: none of them has a vs_level")
    return [{"id": agent, "level": level} for agent, level in found.items()]
