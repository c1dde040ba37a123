"""Simulated users: what the record and the checks say of them, the answers that they lose, and what they took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.evaluators.checks.check import CheckVerdict
from evalq.evalcore.model.calls import BY_USER, Attempt, UserFacts, user_facts
from evalq.evalcore.model.state import Merging
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.quantiles import Quantiles


class UserUse(NamedTuple):
    """Calls of a simulated user for one answer, their cost if any is known, and the models that served it."""

    calls: int = 0
    cost: float | None = None
    served: tuple[str, ...] = ()


def use_of_user(record: Mapping[str, Any]) -> UserUse:
    """What the simulated user of a line took; nothing of attempts that cannot be read."""
    listed = record.get("attempts")
    made = [
        each for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and each.get("by") == BY_USER
    ]  # fmt: skip
    try:
        attempts = msgspec.convert(made, list[Attempt])
    except msgspec.ValidationError:
        return UserUse(len(made))
    served = dict.fromkeys(each.served.label for each in attempts if each.served)
    return UserUse(
        len(attempts),
        sum(known) if (known := [each.cost for each in attempts if each.cost is not None]) else None,
        tuple(served),
    )


LOST = "lost by the simulated user"
"""Begins the reason of an answer that counts neither for nor against the agent, as its user failed."""


class ScoredUser(msgspec.Struct, frozen=True):
    """The simulated user of an output, the calls that it took, and its ``fault``: empty unless it loses the answer.

    With checks about the user, ``passes`` says whether the agent's answer would pass, ``held`` whether the user passes
    all of them, and ``labelled`` whether it does by people's labels; each is None if that is not known.
    """

    facts: UserFacts
    use: UserUse = UserUse()
    fault: str = ""
    passes: bool | None = None
    held: bool | None = None
    labelled: bool | None = None


def user_of(record: Mapping[str, Any], *, checked: bool) -> ScoredUser | None:
    """The simulated user of a line, with the fault that the line itself says; None without one, unless ``checked``."""
    facts = user_facts(record.get("user"))
    if facts is None:
        return ScoredUser(UserFacts()) if checked else None
    said = facts.fault if isinstance(facts.fault, str) else "its record says so" if facts.fault else ""
    return ScoredUser(facts, use_of_user(record), shorten(said, 200))


class UserVerdict(NamedTuple):
    """The verdict of a check about the user, whether it is ``fallible``, and people's ``label``, if there is one."""

    verdict: CheckVerdict
    fallible: bool
    label: bool | None


def with_conduct(user: ScoredUser, about: Sequence[UserVerdict], *, passes: bool) -> ScoredUser:
    """The user with what the checks about it say; ``passes``: whether the answer passes the others."""
    if user.fault or not about or any(each.verdict.passed is None for each in about):
        return user
    # By people if they labelled all that may be wrong, and anything at all.
    missing = any(each.label is None and each.fallible for each in about)
    labelled = None
    if not missing and any(each.label is not None for each in about):
        labelled = all(each.verdict.passed if each.label is None else each.label for each in about)
    failed = next((each.verdict for each in about if not each.verdict.passed), None)
    fault = f"{failed.name}: wanted {failed.wanted}, found {failed.found}" if failed is not None else ""
    return msgspec.structs.replace(user, fault=fault, passes=passes, held=failed is None, labelled=labelled)


# The tallies of a chunk.


_MOST = 100
"""Simulated users, and digests and models of each, in the report: the first ones by name."""


def first_names(names: Iterable[str]) -> list[str]:
    """The first names, in order."""
    return sorted(names)[:_MOST]


class UserTally(Merging, array_like=True):
    """One simulated user: ``answers``, of which some are lost by its ``faults`` (by kind), and its calls.

    ``configs`` are digests of its settings, ``served`` the models that served it.
    """

    answers: int = 0
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    calls: int = 0
    configs: list[str] = msgspec.field(default_factory=list)
    served: list[str] = msgspec.field(default_factory=list)
    cost: Quantiles = msgspec.field(default_factory=Quantiles)

    def merge(self, later: UserTally) -> None:
        """Add the answers of later lines."""
        self.answers += later.answers
        self.calls += later.calls
        for kind, count in later.faults.items():
            self.faults[kind] = self.faults.get(kind, 0) + count
        self.configs = first_names({*self.configs, *later.configs})
        self.served = first_names({*self.served, *later.served})
        self.cost.merge(later.cost)

    def settled(self) -> UserTally:
        """The tally in the order of the wire form."""
        self.faults = dict(sorted(self.faults.items()))
        self.cost.buckets = dict(sorted(self.cost.buckets.items()))
        return self


_FAULT_KINDS = frozenset(("rate_limit", "quota", "timeout", "server", "crashed", "auth", "refused", "bad_output"))


def _fault_kind(user: ScoredUser) -> str:
    """What found the fault: the kind of a call's failure, a check, or what somebody wrote into the record."""
    if user.held is not None:
        return "check"
    return str(user.facts.fault) if user.facts.fault in _FAULT_KINDS else "record"


def count_users(users: Iterable[ScoredUser]) -> dict[str, UserTally]:
    """The tallies of simulated users by name."""
    found: dict[str, list[ScoredUser]] = {}
    for user in users:
        found.setdefault(shorten(user.facts.target), []).append(user)
    return {name: _tally_of_user(found[name]).settled() for name in first_names(found)}


def _tally_of_user(users: list[ScoredUser]) -> UserTally:
    tally = UserTally(len(users), calls=sum(user.use.calls for user in users))
    for kind in (_fault_kind(user) for user in users if user.fault):
        tally.faults[kind] = tally.faults.get(kind, 0) + 1
    tally.configs = first_names({shorten(user.facts.config) for user in users} - {""})
    tally.served = first_names({shorten(model) for user in users for model in user.use.served})
    tally.cost = Quantiles.of([user.use.cost for user in users if user.use.cost is not None])
    return tally


def merge_users(mine: dict[str, UserTally], later: dict[str, UserTally]) -> dict[str, UserTally]:
    """The simulated users of both, in the order of names."""
    for name, tally in later.items():
        if name in mine:
            mine[name].merge(tally)
        else:
            mine[name] = tally
    return {name: mine[name].settled() for name in first_names(mine)}


def conduct_cells(passes: bool, held: bool, labelled: bool | None) -> list[int]:
    """One output in its three of twelve cells: all outputs that pass or fail, and whose user held or did not by its
    checks; of these, those whose user held by people's labels; and those whose user did not.
    """
    cells = [0] * 12
    at = 3 * (2 * (not passes) + (not held))
    cells[at] = 1
    if labelled is not None:
        cells[at + 1 + (not labelled)] = 1
    return cells
