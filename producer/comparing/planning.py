"""What a policy's gates will be able to detect in a run, before it is paid for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from evalq.evalcore.compare.eligibility import why_advisory
from evalq.evalcore.compare.gate import run_meant
from evalq.evalcore.compare.outlook import DECISIONS, Plan, Power, off_scale, powers
from evalq.evalcore.compare.pairs import Side, pairs_of
from evalq.evalcore.compare.policy import Gate, Policy
from evalq.evalcore.compare.single_cases import enough_for
from evalq.evalcore.compare.spending import DUE, SINGLE, GateLook, spent_digest
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError
from evalq.evalcore.views.markdown import escape, plural, table
from evalq.producer.comparing.gate_record import looks_of
from evalq.producer.comparing.gating import is_approved
from evalq.producer.comparing.operands import base_of

if TYPE_CHECKING:
    from evalq.producer.servers import Servers


_RATES = (1.0, 0.99, 0.95, 0.9, 0.8)
"""Pass rates in the table of answers that prove a demand on single cases."""


class RunPlan(msgspec.Struct, frozen=True):
    """The planned run; 0 means as many as the baseline has."""

    repeats: int = 0
    cases: int = 0
    rate: float = 0.8
    seed: int = 1


class Proof(msgspec.Struct, frozen=True):
    """How many ``answers`` prove a demand on single cases of all ``cases``, in four of five runs.

    By the pass rate of every case ("1", "0.95", ...): None if no number is enough.
    """

    metric: str
    demand: str
    cases: int
    answers: dict[str, int | None]


class Outlook(msgspec.Struct, frozen=True):
    """The power of each demand, ``proofs`` of demands on single cases, and ``notes`` on the other demands.

    ``look`` is the number of the next look at the approved baseline, 0 if looks are not counted. ``alpha`` is the error
    level of NO-GO.
    """

    baseline: str
    powers: list[Power]
    notes: list[str]
    alpha: float
    proofs: list[Proof] = []
    look: int = 0


def outlook(
    policy: Policy,
    candidates: Sequence[RunCases],
    baseline: str,
    run_plan: RunPlan,
    servers: Servers,
) -> Outlook:
    """The outlook for a run like ``candidates`` (or as ``asked``) against ``baseline`` (or none yet).

    At an approved baseline it is for the next look, without counting one. Raises UsageError if the number of cases is
    unknown.
    """
    bases = base_of(baseline, servers) if baseline else []
    look, errors = 0, SINGLE
    if baseline and is_approved(baseline, servers):
        # Each run once, as in a gate: the digest that identifies the looks has to be the same.
        used = {id(base): base for gate in policy.gates if (base := _run_of(gate, bases)) is not None}
        look = looks_of(servers).count(spent_digest(used.values())) + 1
        errors = GateLook(look).errors
    found: list[Power] = []
    proofs: list[Proof] = []
    notes: list[str] = []
    for gate in policy.gates:
        base = _run_of(gate, bases)
        measure = _measure(gate, base)
        if measure is None:
            notes.append(f"{gate.metric} is no measure of single cases: its power is not simulated")
            continue
        if off := off_scale(gate, measure):
            raise UsageError(f"{gate.metric}: {off[1]}")
        if base is not None and (why := why_advisory(gate.path, policy, base, None)):
            notes.append(f"{gate.metric} will be advisory: {why}")
        plan = _plan(gate, measure, base, _run_of(gate, candidates), run_plan)
        proofs += _proofs(gate, plan.cases)
        try:
            found += powers(gate, measure, plan, errors, run_plan.seed)
        except ValueError as error:
            notes.append(f"{gate.metric}: {error}")
    notes += _warnings(policy, bases, run_plan)
    return Outlook(baseline, found, notes, errors.no_go, proofs, look)


def _proofs(gate: Gate, cases: int) -> Iterator[Proof]:
    for demand in gate.per_case.demands if gate.per_case is not None else ():
        answers = {f"{rate:g}": enough_for(demand, rate, cases) for rate in _RATES}
        yield Proof(gate.metric, demand.demand, cases, answers)


def _run_of(gate: Gate, runs: Sequence[RunCases]) -> RunCases | None:
    found = run_meant(gate.run, [(run.called, run.evaluator) for run in runs])
    return None if found is None else runs[found]


def _measure(gate: Gate, base: RunCases | None) -> Measure | None:
    """The measure of a gate, as declared by the baseline or else by its evaluator."""
    if base is not None:
        return gate.measure_in(base.cases.measures)
    declared = plugins.get(gate.run).measures
    return gate.measure_in(declared.measures) if declared is not None else None


def _plan(gate: Gate, measure: Measure, base: RunCases | None, cand: RunCases | None, run_plan: RunPlan) -> Plan:
    side = _side(base, measure) if base is not None else None
    # The number of answers a case is that of the run, or else of the baseline.
    like = _side(cand, measure) if cand is not None else side
    repeats = run_plan.repeats or (_typical(like) if like is not None else 0)
    cases = len(side.answers) if side is not None else run_plan.cases or (len(like.answers) if like is not None else 0)
    if not cases or not repeats:
        raise UsageError(f"{gate.metric}: name what is planned: --baseline NAME, or --cases N and --repeat N")
    return Plan(cases, repeats, side, run_plan.rate)


def _side(run: RunCases, measure: Measure) -> Side:
    # Paired with itself, to get its answers as a comparison does.
    return pairs_of(run.cases, run.cases, measure).base


def _typical(side: Side) -> int:
    counts = sorted(side.answers.tolist())
    return int(counts[len(counts) // 2]) if counts else 0


def _warnings(policy: Policy, bases: Iterable[RunCases], run_plan: RunPlan) -> Iterator[str]:
    # Faults of the plan itself, which no answer can undo.
    if 0 < run_plan.repeats < policy.minimum_repeats:
        yield (
            f"{plural(run_plan.repeats, 'answer a case is', 'answers a case are')} planned, but the policy needs "
            f"{policy.minimum_repeats}: demands that count cases cannot be GO"
        )
    if policy.quarantine:
        quarantined = plural(len(policy.quarantine), "case in quarantine is", "cases in quarantine are")
        yield f"{quarantined} simulated like all others"
    for base in bases:
        cases = len(base.cases.ids)
        if cases < policy.minimum_pairs:
            yield (
                f"{base.evaluator}: the baseline has {plural(cases, 'case')}, and the policy needs at "
                f"least {policy.minimum_pairs}: it cannot be GO"
            )
        if base.cases.measures and run_plan.repeats:
            typical = _typical(_side(base, base.cases.measures[0]))
            if typical < 4 * run_plan.repeats:
                yield (
                    f"{base.evaluator}: the baseline has {plural(typical, 'answer')} a case; approve one with "
                    f"at least four times the candidate's {run_plan.repeats}"
                )


def outlook_text(found: Outlook) -> str:
    """The chances of each demand, with notes."""
    against = f" against {escape(found.baseline)}" if found.baseline else ""
    lines = [f"# What this gate can tell{against}", ""]
    for power in found.powers:
        lines += _of_demand(power)
    for proof in found.proofs[:1]:
        lines += [f"Answers a case that prove it of all {proof.cases:,} cases in 80 %, if every case passes", ""]
        heads = (
            "number",
            "has to be",
            *("always" if rate == "1" else f"{100 * float(rate):g} %" for rate in proof.answers),
        )
        rows: list[tuple[object, ...]] = [
            (each.metric, each.demand, *("none" if n is None else f"about {n:,}" for n in each.answers.values()))
            for each in found.proofs
        ]
        lines += [table(heads, rows)]
    notes = [
        "Falls are spread over all cases. The veto of single cases is not simulated.",
        f"NO-GO and SUSPECT are decided at an error of {found.alpha:.3g} each.",
        *_of_looks(found),
        *found.notes,
    ]
    return "\n".join([*lines, *(f"- {escape(note)}" for note in notes)]) + "\n"


def _of_demand(power: Power) -> list[str]:
    heads = ("if the mean fell by", *DECISIONS, "repeats for 80 %")
    rows: list[tuple[object, ...]] = [
        (
            f"{100 * each.drop:.3g} points" if each.drop else "nothing",
            *(f"{100 * each.shares[decided]:.0f} %" for decided in DECISIONS),
            "" if each.wanted is None else f"{each.wanted}: {'none' if each.repeats is None else _about(each.repeats)}",
        )
        for each in power.chances
    ]
    lines = [f"{escape(power.metric)} {escape(power.demand)}", "", table(heads, rows)]
    if power.suspect_from is not None and power.no_go_from is not None:
        suspect, no_go = 100 * power.suspect_from, 100 * power.no_go_from
        seen = (
            f"a fall is SUSPECT or NO-GO from about {suspect:.1f} points on, and NO-GO from about {no_go:.1f} points on"
        )
        lines += [f"In four of five gates {seen}.", ""]
    return lines


def _about(repeats: int) -> str:
    return f"about {repeats:,}"


def _of_looks(found: Outlook) -> Iterator[str]:
    if found.look:
        yield GateLook(found.look).sentence()
        if found.look < DUE:
            yield f"Each comparison sees less than the one before. A new baseline is due at number {DUE}."
