"""Runs by two golden sets: the cases that both have, which are all that can be compared of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import of_cases

__all__ = ["in_common", "told_in_common"]


def in_common(candidates: Sequence[RunCases], partners: Mapping[str, RunCases]) -> dict[str, RunCases]:
    """``partners``, by what a candidate is called, as each is held to them: where its golden set is another one,
    without the cases that it has not. Of one golden set what a candidate has no record of is missing.
    """
    return {run.called: _held(run, partners[run.called]) for run in candidates if run.called in partners}


def told_in_common(candidates: Sequence[RunCases], partners: Mapping[str, RunCases]) -> Iterator[str]:
    """How many cases runs by different golden sets have in common, a sentence each."""
    for run in candidates:
        partner = partners.get(run.called)
        if partner is None or run.specification == partner.specification:
            continue
        ours, theirs = _asked(run), _asked(partner)
        yield (
            f"{run.called}: another golden set or other parameters than the baseline's; {len(ours & theirs)} case(s) "
            f"are in both, of {len(theirs)} of the baseline and {len(ours)} of the candidate"
        )


def _asked(run: RunCases) -> set[str]:
    # Its golden set has also those that nobody recorded.
    return {*run.cases.ids, *(run.cases.unrecorded or ())}


def _held(run: RunCases, partner: RunCases) -> RunCases:
    if run.specification == partner.specification:
        return partner
    # GATE, The question: of another golden set the intersection counts, if any does.
    there = _asked(run)
    both = [case for case in partner.cases.ids if case in there]
    return msgspec.structs.replace(partner, cases=of_cases(partner.cases, both))
