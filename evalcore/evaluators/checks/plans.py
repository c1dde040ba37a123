"""The cases of checks made ready, and which of them, at which repeat, a line is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.check import Check
from evalq.evalcore.evaluators.checks.compiling import compiled
from evalq.evalcore.evaluators.checks.diversity.pairs import PAIR
from evalq.evalcore.evaluators.checks.labelling.heard import KnownLabels, given_labels
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Diversity, diversity_of
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck, JudgeQuestion
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.naming import found, shorten
from evalq.evalcore.records.named_files import case_of_name, readings

__all__ = ["Plan", "Plans"]

_MOST_REPEATS = 2**53


class Plan(msgspec.Struct, frozen=True):
    """A case made ready: its place among the cases, and whether the selection leaves it out.

    ``asked`` is what judges are asked, by the key that recorded judgements have; ``asks`` is that of its checks, by
    judge, too, as often as any of them wants that asked. ``diversity`` says how answers are counted by kind, None where
    they are not. ``given`` is what is known of labels.
    """

    index: int
    case: Case
    checks: tuple[Check, ...]
    skipped: bool
    asked: Mapping[str, JudgeQuestion]
    asks: Mapping[tuple[str, str], JudgeQuestion]
    given: KnownLabels
    diversity: Diversity | None = None

    @property
    def judged(self) -> tuple[bool, ...]:
        """Of each check whether it may be wrong and decides."""
        return self.given.judged


class Plans:
    """The cases of one set of params, each made ready when it is first asked for."""

    def __init__(self, params: ChecksParams) -> None:
        self._cases = {case.id: (index, case) for index, case in enumerate(params.cases)}
        self._tag = params.tag
        self._params = params
        self._plans: dict[str, Plan] = {}

    def plan(self, case: str) -> Plan | None:
        """The case of that id made ready, when it is first asked for; None where there is none."""
        known = self._plans.get(case)
        if known is None and case in self._cases:
            index, given = self._cases[case]
            skipped = bool(self._tag) and self._tag not in given.tags
            checks = () if skipped else tuple(self._check(written, given) for written in given.checks)
            # The most votes last, so that of several that ask the same this one stays under the key.
            every = sorted((each for check in checks for each in check.asks()), key=lambda each: each.votes)
            asked, asks = {each.key: each for each in every}, {(each.key, each.judge): each for each in every}
            how = diversity_of(given, self._params)
            if how is not None and how.judge:
                asked[PAIR.key] = PAIR
            labels = given_labels(given, checks, self._params.labels.get(case, {}))
            known = self._plans[case] = Plan(index, given, checks, skipped, asked, asks, labels, how)
        return known

    def _check(self, written: Mapping[str, Any], case: Case) -> Check:
        try:
            return compiled(written)
        except BadCheck as error:
            where = f".{error.path}" if error.path else ""
            raise ConfigError(f"case {case.id}: {canonical_json(dict(written)).decode()}{where}: {error}") from None

    def addressed(self, record: dict[str, Any]) -> tuple[Plan | None, int | None, str]:
        """Which case and repeat a line is of, and what is wrong with the address."""
        if "case" not in record and isinstance(record.get("named"), str):
            return self._named(record["named"])
        case, repeat = record.get("case"), record.get("repeat", 0)
        # Not isinstance: true is an int in Python, and no repeat.
        whole = type(repeat) is int and 0 <= repeat < _MOST_REPEATS
        if not isinstance(case, str):
            return None, None, f"case: {found(record, 'case')} where the id of a case is wanted"
        plan = self.plan(case)
        if plan is None:
            return None, repeat if whole else None, f"case: {shorten(case)!r} is none of the cases"
        if not whole:
            return plan, None, f"repeat: {found(record, 'repeat')} where a whole number from 0 is wanted"
        return plan, repeat, ""

    def _named(self, name: str) -> tuple[Plan | None, int | None, str]:
        """Of an output in a file: the case of that name, else the name's last number is the repeat."""
        meant = case_of_name(name, lambda case: self.plan(case) is not None)
        if meant is None:
            told = " nor ".join(repr(shorten(case)) for case, _ in readings(name))
            return None, None, f"named: no case has the id {told}; call the file ID.txt or ID.REPEAT.txt"
        return self.plan(meant[0]), meant[1], ""
