"""What is known of targets before they are called: by the targets file here, or by what processes that call tell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from evalq.evalcore.errors import UsageError
from evalq.evalcore.version import code_version
from evalq.producer.runs.backend import Backend
from evalq.workers.callers.choices import known_facts, refuse_unknown
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.ledger.heartbeats import Heartbeats, TargetFacts
from evalq.workers.servers.connections import connect
from evalq.workers.targets import NamedTarget, load_targets

__all__ = ["Callers"]


class Callers:
    """Who would make calls for a command at ``backend``, over the servers of ``shared`` where it names no fleet."""

    def __init__(self, backend: Backend, shared: Backend) -> None:
        self._backend = backend
        self._settings = shared.settings

    @cached_property
    def here(self) -> Mapping[str, NamedTarget]:
        """The targets file of a command that makes calls itself; nothing where a fleet makes them by its own.

        Raises ConfigError.
        """
        targets = self._backend.asked.targets
        return load_targets(targets) if targets and self._backend.calls_here else {}

    @cached_property
    def _told(self) -> list[Mapping[str, TargetFacts]]:
        """{target: its facts} of everybody who calls."""
        if self.here:
            return [{name: target_facts(named) for name, named in self.here.items()}]
        if not self._settings.broker:
            return []
        callers = Heartbeats(connect(self._settings.ledger_address, self._settings)).callers().values()
        # Processes of other code never take calls of this one's sweeps.
        return [caller.targets for caller in callers if caller.code == code_version()]

    def facts(self, target: str, *, priced: bool = False) -> list[TargetFacts]:
        """What those who call tell of a target; nothing of a fleet that nobody is in yet.

        Raises UsageError where none of them knows it, or lets it choose what it chooses, or has no price (``priced``).
        """
        found = [facts for told in self._told if (facts := known_facts(told, target)) is not None]
        if self._told and not found:
            refuse_unknown(self._told, target)
        if priced and any(each.price is None for each in found):
            raise UsageError(f"--max-cost: target {target!r} has no price in the targets file")
        return found
