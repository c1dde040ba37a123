"""Targets that the fleet can call, with the caller's choices, and sweeps whose target no living process can call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.workers.callers.target_sessions import TargetSession
from evalq.workers.ledger.heartbeats import CallerFacts, TargetFacts
from evalq.workers.targets.target import chosen_digest, value_digest
from evalq.workers.targets.variable import Choices, chosen_values, split_name


def facts_of(targets: Mapping[str, TargetFacts], name: str) -> TargetFacts | None:
    """The facts of a target by its name, which may include choices; None if there is no such target.

    Raises UsageError if callers cannot choose that.
    """
    if name in targets:
        return targets[name]
    base, chosen = split_name(name)
    known = targets.get(base)
    if known is None:
        return None
    listed = {parameter: Choices(dict.fromkeys(labels)) for parameter, labels in known.listed.items()}
    ranges = {parameter: Choices({}, *bounds) for parameter, bounds in known.ranges.items()}
    values = chosen_values(base, {**listed, **ranges}, chosen)
    digests = {
        parameter: known.listed[parameter][chosen[parameter]] if parameter in listed else value_digest(value)
        for parameter, value in values.items()
    }
    return msgspec.structs.replace(known, config=chosen_digest(known.core, {**known.given, **digests}))


def known_facts(targets: Mapping[str, TargetFacts], name: str) -> TargetFacts | None:
    """`facts_of`; None also for a choice that callers cannot make."""
    with contextlib.suppress(UsageError):
        return facts_of(targets, name)
    return None


def refuse_unknown(by_process: Sequence[Mapping[str, TargetFacts]], name: str) -> NoReturn:
    """Raise UsageError for a target that nobody can call; ``by_process`` has each calling process's targets."""
    for targets in by_process:
        facts_of(targets, name)  # raises the reason, if callers cannot choose that
    known = sorted({each for targets in by_process for each in targets})
    raise UsageError(f"no calling process knows a target {name!r} (known: {', '.join(known)})")


# -- sweeps that no living process can call: they end with hosts and reasons -----------------------

FAULT_SECONDS = 15.0
"""How long a sweep waits for a process with the target's key, once one without it was found."""
_AGAIN_SECONDS = 2.0
_SHOWN_HOSTS = 5


class UnreachableTargets:
    """Since when targets of this process's sweeps cannot be called; evalq tries a silent one for ``down_seconds``."""

    def __init__(self, down_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._down_seconds = down_seconds
        self._clock = clock
        self._since: dict[str, float] = {}

    def due(self, run: str, session: TargetSession) -> bool:
        """Whether a sweep has waited for its target as long as it may, as this process sees it; true now and then."""
        if not session.trouble:
            self._since.pop(run, None)
            return False
        limit = FAULT_SECONDS if session.fault else self._down_seconds
        now = self._clock()
        if now - self._since.setdefault(run, now) < limit:
            return False
        # Due again after a pause, not at each round: then the process reads the heartbeats of all callers.
        self._since[run] = now - limit + _AGAIN_SECONDS
        return True

    def keep(self, runs: Iterable[str]) -> None:
        """Forget all sweeps but these."""
        known = set(runs)
        self._since = {run: at for run, at in self._since.items() if run in known}


def unreachable_reasons(callers: Iterable[CallerFacts], code: str, target: str) -> str:
    """Which hosts cannot call a target, and why; empty if a process can, or none knows the target."""
    known = [(caller, known_facts(caller.targets, target)) for caller in callers if caller.code == code]
    targets = [(caller, facts) for caller, facts in known if facts is not None]
    if not targets or not all(facts.trouble for _, facts in targets):
        return ""
    reasons = sorted({f"{caller.host}: {facts.trouble}" for caller, facts in targets})
    more = f"; and {len(reasons) - _SHOWN_HOSTS} more" if len(reasons) > _SHOWN_HOSTS else ""
    return "; ".join(reasons[:_SHOWN_HOSTS]) + more
