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
    """The agents of a registry file, ``agents: {id: level}``, as plain params. Raises ConfigError with file and key."""
    data = load_mapping(path)
    unknown = sorted(set(data) - {"agents"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]}: unknown key (known here: agents)")
    agents: Mapping[Any, Any] | Any = data.get("agents")
    if not isinstance(agents, dict) or not agents:
        raise ConfigError(f"{path}: agents: must be a mapping of agent ids to levels")
    for agent, level in agents.items():
        # To YAML an id such as 02 is a number, and a level such as `on` a boolean.
        if not isinstance(agent, str) or not isinstance(level, str):
            raise ConfigError(f"{path}: agents.{agent}: both the id and the level must be text")
    return [{"id": agent, "level": level} for agent, level in agents.items()]
