"""What producers know of a target that chooses among what its file lists, from what its callers say of themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from evalq.evalcore.errors import UsageError
from evalq.workers.ledger.heartbeats import TargetFacts
from evalq.workers.targets.digests import chosen_digest, value_digest
from evalq.workers.targets.variable import Choices, chosen_values, split_name

__all__ = ["facts_of", "known_facts", "refuse_unknown"]


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
