"""Which cases two runs have in common: those of one id and one specification, which are all that can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evalq.evalcore.compare.decision import Check, PairedCases
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import of_cases

__all__ = ["Paired", "asked_otherwise", "paired", "paired_all", "specification_checks"]

_LEAST_EQUAL = 0.9
"""The share of the baseline's cases that has to be equal, unless the policy says ``specification: intersection``."""
_SHOWN = 20


class Paired(msgspec.Struct, frozen=True):
    """A baseline held to its candidate: ``partner`` has the equal cases alone, ``cases`` counts them and the others."""

    partner: RunCases
    cases: PairedCases


def paired_all(candidates: Sequence[RunCases], partners: Mapping[str, RunCases]) -> dict[str, Paired]:
    """Each candidate that has a partner, by what it is called, with that partner held to it."""
    return {run.called: paired(run, partners[run.called]) for run in candidates if run.called in partners}


def paired(run: RunCases, partner: RunCases) -> Paired:
    """``partner`` with the cases that are equal in ``run``: by id, and by the digest of input and checks.

    A case that has neither digest is equal by its id. One that ``run`` does not ask is unpaired; one that it asks, or
    may ask, and has no record of, is equal, and its answers are missing.
    """
    ours, theirs = partner.cases.specified, run.cases.specified
    asked = {*_every(run), *run.cases.specified}
    equal, changed, gone = [], [], []
    for case in _every(partner):
        if case in ours and case in theirs and ours[case] != theirs[case]:
            changed.append(case)
        elif _has(case, run, asked, partner):
            equal.append(case)
        else:
            gone.append(case)
    every = _every(run)
    new = sorted(set(every).difference(_every(partner)))
    counts = PairedCases(
        run.called,
        len(equal),
        len(equal) + len(changed) + len(gone),
        len(every),
        tuple(changed[:_SHOWN]),
        tuple(gone[:_SHOWN]),
        tuple(new[:_SHOWN]),
        len(changed),
        len(gone),
        len(new),
    )
    if not changed and not gone:
        return Paired(partner, counts)
    kept = set(equal)
    held = of_cases(partner.cases, [case for case in partner.cases.ids if case in kept])
    return Paired(msgspec.structs.replace(partner, cases=held), counts)


def asked_otherwise(run: RunCases, partner: RunCases) -> str:
    """What of the baseline is another one than the candidate's, beside its cases; empty for nothing."""
    if run.version != partner.version:
        return "another version"
    listed = run.cases.specified and partner.cases.specified
    if run.specification == partner.specification or (listed and run.parameters == partner.parameters):
        return ""
    return "other parameters" if listed else "another golden set or other parameters"


def specification_checks(policy: Policy, run: RunCases, partner: RunCases, cases: PairedCases) -> Iterator[Check]:
    """INCONCLUSIVE where too little is the same for a comparison, unless the policy compares what is."""
    if policy.specification == "intersection":
        return
    demand, advice = "the specification of the baseline", "approve a new one, or allow it (specification: intersection)"
    if what := asked_otherwise(run, partner):
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", f"the baseline has {what}: {advice}", change=True)
    elif cases.equal < _LEAST_EQUAL * cases.base:
        reason = f"{cases.sentence}; 90 % of the baseline's have to be equal: {advice}"
        others = (*cases.changed, *cases.gone)[:_SHOWN]
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", reason, cases=others, change=True)


def _every(run: RunCases) -> list[str]:
    # Its golden set has also those that nobody recorded.
    return sorted({*run.cases.ids, *(run.cases.unrecorded or ())})


def _has(case: str, run: RunCases, asked: set[str], partner: RunCases) -> bool:
    """Whether ``run`` asks ``case``, as far as anybody knows: by a list of its cases, or by one golden set."""
    # Without a list of cases, runs by one specification ask the same; by another, what is not there is not asked.
    return case in asked or (not run.cases.specified and run.specification == partner.specification)
