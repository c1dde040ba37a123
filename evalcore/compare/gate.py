"""A gate: does the candidate keep what the policy demands, as far as its answers can tell?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from evalq.evalcore.compare.collapse_checks import collapse_checks
from evalq.evalcore.compare.comparison import Measured, measured
from evalq.evalcore.compare.decision import Check, Decision, Quarantined, hold_back, overall, undecided
from evalq.evalcore.compare.demands import compared, held, level_in, plain, reported
from evalq.evalcore.compare.intersection import in_common, told_in_common
from evalq.evalcore.compare.looks import SINGLE, Errors
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.quarantine import CaseHistory, aside_in, fallen, flaky_cases, past_of, quarantined
from evalq.evalcore.compare.repeats import enough_repeats, held_by_cases
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.shared_answers import shared
from evalq.evalcore.compare.stopped_cases import asked_alike
from evalq.evalcore.compare.trust_in_judges import nothing_decides, on_trust
from evalq.evalcore.compare.unrecorded_cases import with_unrecorded
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError

__all__ = ["decide", "run_meant"]

_PASSES = "pass_rate"
"""By what a case in quarantine falls."""
_TOLD = 5e-5
"""By how much of its scale a mean may differ from the report's, which has it in four digits where people read it."""
Partners = Mapping[str, RunCases]
"""{what a candidate is called: the approved run that it is compared with}."""


def decide(
    policy: Policy,
    candidates: Sequence[RunCases],
    partners: Partners,
    *,
    baseline: str = "",
    errors: Errors = SINGLE,
    lacking: str = "",
    pasts: Mapping[str, CaseHistory] | None = None,
    today: str = "",
) -> Decision:
    """Hold ``candidates``, each called otherwise, to ``policy``; ``errors`` is how often that may be wrong.

    ``pasts`` is the history of each one's cases by what it is called, its baseline's answers alone where it is left
    out; ``today`` the ISO day by which a quarantine ends.

    A demand that needs a baseline is inconclusive, for the reason in ``lacking``, where a candidate has no partner.
    Raises UsageError for a metric that no candidate has, and for a missing partner where ``lacking`` is empty.
    """
    checks: list[Check] = []
    past = [_past(run, policy, partners, pasts or {}) for run in candidates]
    whole, partners = partners, in_common(candidates, partners)
    held_back = tuple(quarantined(policy, candidates, past, today))
    fell: set[tuple[str, str]] = set()
    for run, known in zip(candidates, past, strict=True):
        fell_here = fallen(run, held_back, errors.no_go, known.stopped)
        for check in on_trust(fell_here, _PASSES, policy, run, partners.get(run.called)):
            checks.append(check)
            fell |= {(run.called, case) for case in check.cases}
        if run.called in partners:
            checks += _of_run(policy, run, partners[run.called])
        # Also without a baseline: a policy of bounds alone must not pass a run whose failures lost their names.
        checks += _nameless(policy, run, partners.get(run.called))
        checks += collapse_checks(policy, run, partners.get(run.called), lacking, errors)
    for gate in policy.gates:
        run = _run_of(gate, candidates)
        partner = partners.get(run.called)
        if gate.compares and partner is None:
            if not lacking:
                raise UsageError(f"{gate.metric} may drop behind a baseline, and none is named: --baseline NAME")
            checks.append(Check(gate.metric, "no drop behind the baseline", gate.tier, "INCONCLUSIVE", lacking))
        own = _of_gate(gate, policy, run, partner, errors, aside_in(run, held_back))
        checks += on_trust(own, gate.path, policy, run, partner)
    # Last: only by now is it known which demands rest on judges, and whether any that decides is left.
    checks += nothing_decides(policy, checks)
    # All of them together, since they share one error.
    decided, counted = overall(checks, errors.no_go, block=policy.on_worse == "block")
    held_back = tuple(_marked(each, fell) for each in held_back)
    notes = (*told_in_common(candidates, whole), *_notes(policy, candidates, past))
    return Decision(decided, counted, notes, tuple(run.run for run in candidates), baseline, held_back)


def _marked(entry: Quarantined, fell: Collection[tuple[str, str]]) -> Quarantined:
    """The entry, with whether its case is among those that ``fell``, each (what its run is called, its id)."""
    return msgspec.structs.replace(entry, fell=True) if entry.aside and (entry.run, entry.case) in fell else entry


def _past(run: RunCases, policy: Policy, partners: Partners, pasts: Mapping[str, CaseHistory]) -> CaseHistory:
    # Nobody needs the history where no demand is on single cases.
    if run.called in pasts or not policy.by_case:
        return pasts.get(run.called, CaseHistory({}, 0))
    return past_of(run, partners.get(run.called))


def _run_of(gate: Gate, runs: Sequence[RunCases]) -> RunCases:
    found = run_meant(gate.run, [(run.called, run.evaluator) for run in runs])
    if found is None:
        there = ", ".join(sorted(run.called for run in runs))
        raise UsageError(f"{gate.metric}: no single run {gate.run} is gated; there are: {there}")
    return runs[found]


def run_meant(name: str, runs: Sequence[tuple[str, str]]) -> int | None:
    """Which of ``runs``, each (what it is called, its evaluator), a policy means by ``name``; None for none or several.

    What it is called counts first; an evaluator's name will do where it has one run only.
    """
    for which in (0, 1):
        found = [number for number, names in enumerate(runs) if names[which] == name]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _of_run(policy: Policy, run: RunCases, partner: RunCases) -> Iterator[Check]:
    """What any two runs have to have in common before their numbers are compared, and what not."""
    # GATE 8: cached or reused answers are never fresh evidence, neither of a change nor of none.
    if common := shared(run, partner):
        reason = f"{common}: they are no evidence of a change, nor of none; gate a run of its own answers"
        yield Check(run.called, "answers of its own", "critical", "INCONCLUSIVE", reason)
    # Other parameters or another version ask something else: the numbers may move though no agent did.
    if (run.specification, run.version) != (partner.specification, partner.version):
        what = "another golden set or other parameters" if run.version == partner.version else "another version"
        if policy.specification == "same":
            reason = f"the baseline has {what}: approve a new one, or allow it (specification: intersection)"
            yield Check(run.called, "the specification of the baseline", "critical", "INCONCLUSIVE", reason)
    measure = run.cases.measures[0]
    lost = pairs_of(partner.cases, run.cases, measure)
    if lost.missing > policy.missing:
        cases = f", {len(lost.alone)} case(s) without any" if lost.alone else ""
        reason = f"{lost.missing} answer(s) are missing that the baseline has{cases}; {policy.missing} may be"
        demand = f"at most {policy.missing} answers missing"
        yield Check(run.called, demand, "critical", "NO-GO", reason, value=lost.missing, cases=tuple(lost.alone[:20]))


def _nameless(policy: Policy, run: RunCases, partner: RunCases | None) -> Iterator[Check]:
    """Records of no case may be the very answers that failed: more of them than may be missing leave it open."""
    # As many as were approved are no news.
    allowed = policy.missing + (partner.cases.unattributed if partner is not None else 0)
    if run.cases.unattributed > allowed:
        demand = f"at most {allowed} records without a case"
        reason = f"{run.cases.unattributed} record(s) name no case, so that nobody knows which answers they are"
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", reason, value=run.cases.unattributed)


def _of_gate(
    gate: Gate, policy: Policy, run: RunCases, partner: RunCases | None, errors: Errors, aside: frozenset[str]
) -> Iterator[Check]:
    measure = gate.measure_in(run.cases.measures)
    if measure is None:
        yield from plain(gate, run, partner)
        return
    least = policy.minimum_repeats
    # By every case that there should be: with a baseline that is told by the cases that it has.
    every = with_unrecorded(run.cases)
    for check in held(gate, every, measure, errors):
        yield _unselected(enough_repeats(check, every, measure, least), errors, run)
    for check in held_by_cases(gate, every, measure, errors, least, aside):
        yield _unselected(check, errors, run)
    if partner is not None and gate.compares and measure.name not in partner.cases.columns:
        reason = "no record of the baseline has this number"
        yield Check(gate.metric, "no drop behind the baseline", gate.tier, "INCONCLUSIVE", reason)
    elif partner is not None and gate.compares:
        observed, worst = _estimates(partner, run, measure, errors.go)
        for check in compared(gate, measure, observed, worst, errors):
            counted = enough_repeats(_enough(check, observed, policy), run.cases, measure, least)
            yield _unselected(counted, errors, run, partner)


def _unselected(check: Check, errors: Errors, run: RunCases, partner: RunCases | None = None) -> Check:
    """The check, where no case stopped because of what it answered: means over such answers lean to most of them."""
    stopped = len(run.cases.stopped) + (len(partner.cases.stopped) if partner is not None else 0)
    if not stopped or check.decided == "INCONCLUSIVE":
        return check
    # A drop behind what stopped alike is none that stopping makes, nor is a number missed that is demanded exactly.
    alike = partner is not None and asked_alike(partner.cases, run.cases)
    if check.decided in ("NO-GO", "SUSPECT") and (alike or check.certain or errors.screens):
        return check
    return undecided(
        check,
        f"{stopped} case(s) were asked no more once they were decided, so that how often depends on what they "
        "answered: for a gate sweep without --stop",
    )


def _estimates(
    partner: RunCases, run: RunCases, measure: Measure, alpha: float
) -> tuple[Measured | None, Measured | None]:
    """The change as observed, and with everything that is missing held against the candidate."""
    pairs, harsh = (pairs_of(partner.cases, run.cases, measure, worst=worst) for worst in (False, True))
    return tuple(measured(each, measure, alpha) if each.ids else None for each in (pairs, harsh))  # type: ignore[return-value]  # two of them


def _enough(check: Check, observed: Measured | None, policy: Policy) -> Check:
    # GATE 6: few cases hold back GO only; what they show beyond chance is shown.
    cases = observed.estimate.cases if observed else 0
    if cases >= policy.minimum_pairs:
        return check
    return hold_back(check, f"{cases} case(s) in both runs, and the policy wants {policy.minimum_pairs}")


def _notes(policy: Policy, candidates: Sequence[RunCases], past: Sequence[CaseHistory]) -> Iterator[str]:
    yield from _uncounted(candidates)
    yield from (f"{run.called}: {each.sentence()}" for run in candidates for each in run.left_out)
    yield from _otherwise(policy, candidates)
    yield from _idle(policy, candidates)
    yield from _flaky(candidates, past)


def _uncounted(candidates: Sequence[RunCases]) -> Iterator[str]:
    for run in candidates:
        if run.cases.unattributed:
            yield f"{run.called}: {run.cases.unattributed} record(s) name no case and count nowhere"
        if run.cases.unrecorded:
            yield f"{run.called}: {len(run.cases.unrecorded)} case(s) have no record: all of their answers are missing"
        lacking = sum(run.cases.missing)
        if lacking:
            yield f"{run.called}: {lacking} answer(s) are missing (errors, dead or unanswered); they are no scores"


def _otherwise(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[str]:
    """Measures that a report tells otherwise: GATE counts all cases alike, and a report may weigh them, or answers."""
    # What is demanded of single cases alone is decided by no mean.
    by_mean = {gate.metric: gate for gate in policy.gates if gate.about_mean}
    for metric, gate in by_mean.items():
        run = _run_of(gate, candidates)
        measure = gate.measure_in(run.cases.measures)
        level = level_in(run.cases, measure) if measure is not None else None
        told = reported(gate.path, run)
        if level is not None and told is not None and abs(level.mean - told) > _TOLD * level.width:
            yield (
                f"{metric}: decided by {level.mean:.4g}, the mean over cases that count alike; the report has "
                f"{told:.4g}, by the weights of cases or by answers"
            )


def _idle(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[str]:
    """Demands that nothing can fail, or next to nothing: ``max_drop: 1`` where one point is meant."""
    for gate in policy.gates:
        measure = gate.measure_in(_run_of(gate, candidates).cases.measures)
        if measure is not None and gate.max_drop is not None and gate.max_drop >= measure.width:
            # GATE 6: GO where a fall by the margin is excluded, which one by the very scale need not be.
            failing = "no run" if gate.max_drop > measure.width else "hardly any run"
            yield (
                f"{gate.metric}: max_drop {gate.max_drop:g} is the whole scale from {measure.low:g} to {measure.high:g}"
                f" or more, which {failing} can fail"
            )


def _flaky(candidates: Sequence[RunCases], pasts: Sequence[CaseHistory]) -> Iterator[str]:
    for run, past in zip(candidates, pasts, strict=True):
        if flaky := flaky_cases(past):
            more = f" and {len(flaky) - 10} more" if len(flaky) > 10 else ""
            yield f"{run.called}: {len(flaky)} case(s) are flaky by their history: {', '.join(flaky[:10])}{more}"
