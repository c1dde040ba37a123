"""What the fleet can call: targets with what is chosen of them, and sweeps whose target no living process can call."""

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
    """The facts of a target of that name, with what it chooses; None for one that is not there.

    Raises UsageError for what may not be chosen.
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
    """`facts_of`; None too where something is chosen that may not be."""
    with contextlib.suppress(UsageError):
        return facts_of(targets, name)
    return None


def refuse_unknown(told: Sequence[Mapping[str, TargetFacts]], name: str) -> NoReturn:
    """Raise UsageError for a target that nobody can call; ``told`` is what each process that calls knows."""
    for targets in told:
        facts_of(targets, name)  # raises why nothing of the kind may be chosen
    known = sorted({each for targets in told for each in targets})
    raise UsageError(f"no process that calls knows a target {name!r} (known: {', '.join(known)})")


# -- sweeps that no living process can call: they end with hosts and reasons -----------------------

FAULT_SECONDS = 15.0
"""How long a sweep waits for a process that has the key, once one that has not was found: a sign of life and a half."""
_AGAIN_SECONDS = 2.0
_SHOWN_HOSTS = 5


class UnreachableTargets:
    """What this process knows of its sweeps' targets. ``down_seconds``: how long one that does not answer is tried."""

    def __init__(self, down_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._down_seconds = down_seconds
        self._clock = clock
        self._since: dict[str, float] = {}

    def due(self, run: str, session: TargetSession) -> bool:
        """Whether a sweep has waited for its target, as this process sees it, for as long as it may; now and then."""
        if not session.trouble:
            self._since.pop(run, None)
            return False
        limit = FAULT_SECONDS if session.fault else self._down_seconds
        now = self._clock()
        if now - self._since.setdefault(run, now) < limit:
            return False
        # Due again after a pause, not at each round: being due asks for what every caller tells.
        self._since[run] = now - limit + _AGAIN_SECONDS
        return True

    def keep(self, runs: Iterable[str]) -> None:
        """Forget all sweeps but these."""
        known = set(runs)
        self._since = {run: at for run, at in self._since.items() if run in known}


def unable(callers: Iterable[CallerFacts], code: str, target: str) -> str:
    """Who cannot call a target, and why; "" where somebody can, or nobody knows it."""
    known = [(caller, known_facts(caller.targets, target)) for caller in callers if caller.code == code]
    facts = [(caller, found) for caller, found in known if found is not None]
    if not facts or not all(known.trouble for _, known in facts):
        return ""
    told = sorted({f"{caller.host}: {known.trouble}" for caller, known in facts})
    more = f"; and {len(told) - _SHOWN_HOSTS} more" if len(told) > _SHOWN_HOSTS else ""
    return "; ".join(told[:_SHOWN_HOSTS]) + more
