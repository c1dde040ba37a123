"""A gate: does the candidate keep the policy's demands, as far as its answers can tell?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from evalq.evalcore.compare.comparison import (
    Measured,
    at_worst,
    case_veto,
    change_in,
    measured,
    named_measures,
    new_collapses,
    too_few_to_name,
    undecided_collapses,
)
from evalq.evalcore.compare.decision import (
    LEAST,
    Check,
    Decided,
    FailingCase,
    GateDecision,
    Quarantined,
    keep_from_go,
    named_cases,
    overall,
    undecided,
)
from evalq.evalcore.compare.eligibility import (
    Paired,
    corrected,
    doubled,
    nothing_decides,
    old_labels,
    on_trust,
    other_rules,
    paired_all,
    same_answers,
    specification_checks,
    with_short,
)
from evalq.evalcore.compare.intervals import ALPHA
from evalq.evalcore.compare.numbers import number_checks, reported
from evalq.evalcore.compare.outlook import bound_checks, change_checks, level_in, margin_of, off_scale
from evalq.evalcore.compare.pairs import pairs_of
from evalq.evalcore.compare.policy import CHANGES, Gate, Policy
from evalq.evalcore.compare.single_cases import (
    LOSSES,
    CaseHistory,
    Short,
    enough_repeats,
    flaky_cases,
    incomplete,
    missing_checks,
    past_of,
    per_case_checks,
    quarantine_entries,
    quarantined_in,
    regression_check,
    rows_of,
)
from evalq.evalcore.compare.spending import SINGLE, Errors
from evalq.evalcore.compare.summary import RunCases, asked_alike, common_answers, with_unrecorded
from evalq.evalcore.contract.measures import Measure, pass_measure, size
from evalq.evalcore.errors import UsageError
from evalq.evalcore.statistics.mode_share import collapsed_somewhere
from evalq.evalcore.views.markdown import plural

_NONE, _NONE_NEW = "no collapsed case", "no newly collapsed case"
_NAMED, _KEPT = 5, 20
INCOMPLETE = 3
"""The exit code if evalq's machinery lost answers; the run itself ends with the same code."""
_MOST_FAILING = 1_000
"""The limit for each run: nobody reads a file that shows more of them."""
_PASSES = "pass_rate"
"""The measure that shows whether a case in quarantine falls."""
_SHOWN_DIGITS = 5e-5
"""How far a mean may differ from the report's, as a share of its scale: people read it with four digits."""
_Partners = Mapping[str, RunCases]
"""{the candidate's name: the approved run that it is compared with}."""
_SAME_AGAIN = "`deterministic: true`"
"""The policy's key that lets an agent give the same answers again."""


def decide(
    policy: Policy,
    candidates: Sequence[RunCases],
    partners: _Partners,
    *,
    baseline: str = "",
    errors: Errors = SINGLE,
    lacking: str = "",
    pasts: Mapping[str, CaseHistory] | None = None,
    today: str = "",
) -> GateDecision:
    """Hold ``candidates``, each with its own name, to ``policy``; ``errors`` is how often that may be wrong.

    ``pasts`` is the history of each candidate's cases, by the candidate's name. If one is left out, its baseline's
    answers are the history. ``today`` is the ISO day by which a quarantine ends and labels grow old.

    If a candidate has no partner, demands that need a baseline are inconclusive, for the reason in ``lacking``. Raises
    UsageError for a metric that no candidate has, and for a missing partner if ``lacking`` is empty.
    """
    checks: list[Check] = []
    past = [_past(run, policy, partners, pasts or {}) for run in candidates]
    pairs = paired_all(candidates, partners)
    partners = {called: each.partner for called, each in pairs.items()}
    candidates, short = with_short(candidates, partners, uneven=policy.uneven_repeats)
    excluded = tuple(quarantine_entries(policy, candidates, past, today))
    regressed: set[tuple[str, str]] = set()
    for run, history in zip(candidates, past, strict=True):
        partner = partners.get(run.called)
        regressions = regression_check(run, excluded, errors.no_go, history.stopped)
        for check in on_trust(regressions, _PASSES, policy, run, partner):
            checks.append(check)
            regressed |= {(run.called, case) for case in check.cases}
        if partner is not None:
            quarantined = quarantined_in(run, excluded) - {case for called, case in regressed if called == run.called}
            # Put vetoes first, so that a case that fell stands first in every output.
            if not _other_rules(policy, run, partner):
                checks[:0] = _vetoes(policy, run, partner, errors, quarantined)
            checks += _of_run(policy, run, pairs[run.called], errors, short[run.called])
        # Do this without a baseline, too: a policy of bounds alone must not pass a run whose failures lost their names.
        checks += _unattributed(policy, run, partner)
        checks += _counted_twice(policy, run, partner)
        collapsed = _collapse_checks(policy, run, partner, lacking, errors)
        checks += _comparable(collapsed, policy, run, partner) if policy.collapse == "none-new" else collapsed
    checks += _collapse_unknown(policy, candidates)
    for gate in policy.gates:
        run = _run_of(gate, candidates)
        partner = partners.get(run.called)
        if gate.compares and partner is None:
            if not lacking:
                raise UsageError(f"{gate.metric} may drop behind a baseline, and none is named: --baseline NAME")
            checks.append(
                Check(gate.metric, "no drop behind the baseline", gate.tier, "INCONCLUSIVE", lacking, change=True)
            )
        demanded = _of_gate(gate, policy, run, partner, errors, quarantined_in(run, excluded))
        checks += on_trust(_comparable(demanded, policy, run, partner, changes=True), gate.path, policy, run, partner)
    # Do this last: only now does evalq know which demands rest on judges, and whether others are left to decide.
    checks += nothing_decides(policy, checks)
    # Combine all checks at once, since they share one error.
    decided, counted = overall(checks, errors.no_go, block=policy.on_worse == "block")
    # Check this even if no demand is critical: then no check above can say so.
    if decided == "GO" and (silent := tuple(_unanswered(policy, candidates))):
        decided, counted = "INCONCLUSIVE", (*counted, *silent)
    excluded = tuple(_marked(each, regressed) for each in excluded)
    counts = tuple(each.cases for each in pairs.values())
    lossy = any(map(incomplete, candidates)) or any(check.demand == LOSSES for check in counted)
    return GateDecision(
        decided,
        counted,
        (
            *_notes(policy, candidates, past, pairs, errors),
            *_spent(counted, errors),
            *old_labels(policy, candidates, partners, today),
        ),
        tuple(run.run for run in candidates),
        baseline,
        excluded,
        exit_with=INCOMPLETE if decided == "INCONCLUSIVE" and lossy else None,
        paired=counts,
        failing=tuple(each for run in candidates for each in _failing(run, partners.get(run.called), counted)),
        folders=tuple(run.shown for run in candidates),
    )


def _failing(run: RunCases, partner: RunCases | None, checks: Sequence[Check]) -> list[FailingCase]:
    """The cases of a run that did not pass every time, base beside candidate; cases that a check names come first."""
    measure = pass_measure(run.cases.measures)
    if measure is None:
        return []
    before: dict[str, tuple[int, int]] = {}
    if partner is not None and measure.name in partner.cases.columns:
        before = {row.case: (row.passed, row.answers) for row in rows_of(partner.cases, measure) if row.answers}
    named = named_cases(checks, run.called, run.evaluator)
    failing = [
        FailingCase(run.called, row.case, row.passed, row.answers, before.get(row.case), row.case in named)
        for row in rows_of(run.cases, measure)
        if row.passed < row.answers or not row.answers
    ]
    return sorted(failing, key=lambda each: not each.named)[:_MOST_FAILING]


def _vetoes(
    policy: Policy, run: RunCases, partner: RunCases, errors: Errors, quarantined: Collection[str]
) -> Iterator[Check]:
    """A check that names single cases of a run, for each measure of passes that the policy is about."""
    if policy.worse_cases != "none":
        return
    for measure in named_measures(policy, run):
        if measure.name in partner.cases.columns:
            veto = case_veto(run, partner, measure, errors.no_go, quarantined)
            yield from on_trust([veto] if veto is not None else [], measure.name, policy, run, partner)


def _other_rules(policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    """The rules that differ from the baseline's, so that a change may be theirs; empty if none differ."""
    if partner is None or policy.specification == "intersection":
        return ""
    return other_rules(run, partner)


def _comparable(
    checks: Iterable[Check], policy: Policy, run: RunCases, partner: RunCases | None, *, changes: bool = False
) -> Iterator[Check]:
    """The checks, undecided if different rules may explain them; with ``changes`` only checks on a change."""
    what = _other_rules(policy, run, partner)
    for check in checks:
        about = bool(what) and (check.change or not changes) and check.decided != "INCONCLUSIVE"
        yield undecided(check, f"the baseline has {what}, which may be all that changed") if about else check


def _marked(entry: Quarantined, regressed: Collection[tuple[str, str]]) -> Quarantined:
    """The entry, marked if its case is in ``regressed``, a collection of (the run's name, the case's id)."""
    return msgspec.structs.replace(entry, regressed=entry.quarantined and (entry.run, entry.case) in regressed)


def _past(run: RunCases, policy: Policy, partners: _Partners, pasts: Mapping[str, CaseHistory]) -> CaseHistory:
    # Only demands on single cases need the history.
    if run.called in pasts or not policy.by_case:
        return pasts.get(run.called, CaseHistory({}, 0))
    return past_of(run, partners.get(run.called))


def _run_of(gate: Gate, runs: Sequence[RunCases]) -> RunCases:
    index = run_meant(gate.run, [(run.called, run.evaluator) for run in runs])
    if index is None:
        names = ", ".join(sorted(run.called for run in runs))
        raise UsageError(f"{gate.metric}: no single run {gate.run} is gated; there are: {names}")
    return runs[index]


def run_meant(name: str, runs: Sequence[tuple[str, str]]) -> int | None:
    """The index in ``runs``, each (its name, its evaluator), that a policy means by ``name``; None for none or several.

    The run's name counts first. An evaluator's name works if only one run has that evaluator.
    """
    for which in (0, 1):
        indices = [index for index, names in enumerate(runs) if names[which] == name]
        if indices:
            return indices[0] if len(indices) == 1 else None
    return None


def _of_run(policy: Policy, run: RunCases, pair: Paired, errors: Errors, short: Short) -> Iterator[Check]:
    """Check that two runs are comparable: fresh answers, specifications that agree, few missing answers."""
    compared = any(gate.compares and gate.run in (run.called, run.evaluator) for gate in policy.gates)
    # GATE 8: cached or reused answers are not fresh evidence, neither for a change nor against one.
    if common := common_answers(run, pair.partner):
        reason = f"{common}: these show neither a change nor that there is none; gate a run with fresh answers"
        yield Check(run.called, "answers of its own", "critical", "INCONCLUSIVE", reason, change=True)
    elif not policy.deterministic and compared and (copied := same_answers(run, pair.partner)):
        reason = f"{copied}: copies show no change; evaluate new answers, or put {_SAME_AGAIN} into the policy"
        yield Check(run.called, "answers of its own", "critical", "INCONCLUSIVE", reason, change=True)
    yield from specification_checks(policy, run, pair.partner, pair.cases)
    yield from missing_checks(policy, run, pair.partner, errors, short)


def _unattributed(policy: Policy, run: RunCases, partner: RunCases | None) -> Iterator[Check]:
    """Records without a case may be the very answers that failed: if too many are there, the gate is INCONCLUSIVE."""
    # The baseline was approved with this many, so they are no news.
    allowed = (policy.missing or 0) + (partner.cases.unattributed if partner is not None else 0)
    if run.cases.unattributed > allowed:
        demand = f"at most {allowed} records without a case"
        reason = f"{plural(run.cases.unattributed, 'record')} without a case: nobody knows which answers they are"
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", reason, value=run.cases.unattributed)


def _unanswered(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[Check]:
    """No evidence is never GO: report each run of the policy that has too few answers."""
    meant = {_run_of(gate, candidates).called for gate in policy.gates}
    for run in candidates:
        answers = max((sum(column.count) for column in run.cases.columns.values()), default=0)
        if run.called in meant and answers < LEAST:
            reason = f"{plural(answers, 'answer') if answers else 'no answers'} in all: that is no evidence"
            yield Check(run.called, f"at least {LEAST} answers", "critical", "INCONCLUSIVE", reason, answers)


def _counted_twice(policy: Policy, run: RunCases, partner: RunCases | None) -> Iterator[Check]:
    for side, each in (("candidate", run), ("baseline", partner)):
        if each is not None and not policy.deterministic and (copies := doubled(each)):
            reason = (
                f"the {side} has {copies}, so that the same answers count twice; evaluate each once, or put "
                f"{_SAME_AGAIN} into the policy"
            )
            yield Check(run.called, "each answer once", "critical", "INCONCLUSIVE", reason)


def _of_gate(
    gate: Gate, policy: Policy, run: RunCases, partner: RunCases | None, errors: Errors, quarantined: frozenset[str]
) -> Iterator[Check]:
    measure = gate.measure_in(run.cases.measures)
    if measure is None:
        for check in number_checks(gate, run, partner, errors):
            yield check if check.certain else _unselected(check, errors, run, partner)
        return
    if off := off_scale(gate, measure):
        raise UsageError(f"{gate.metric}: {off[1]}")
    least = policy.minimum_repeats
    # Count every case that should be there. With a baseline, its cases tell which ones.
    every = with_unrecorded(run.cases)
    for check in bound_checks(gate, every, measure, errors):
        yield _unselected(enough_repeats(check, every, measure, least), errors, run)
    for check in per_case_checks(gate, every, measure, errors, least, quarantined):
        yield _unselected(check, errors, run)
    if partner is not None and gate.compares and measure.name not in partner.cases.columns:
        reason = "no record of the baseline has this number"
        yield Check(gate.metric, "no drop behind the baseline", gate.tier, "INCONCLUSIVE", reason, change=True)
    elif partner is not None and gate.compares:
        observed, worst = _estimates(partner, run, measure, errors.go)
        seen = [corrected(each, gate.path, policy, run, partner, errors.go) for each in (observed, worst)]
        for check in change_checks(gate, measure, seen[0], seen[1], errors):
            counted = enough_repeats(_enough(check, observed, policy), run.cases, measure, least)
            yield _unselected(counted, errors, run, partner)


def _unselected(check: Check, errors: Errors, run: RunCases, partner: RunCases | None = None) -> Check:
    """The check, undecided if cases stopped by their answers: a mean over such answers leans to most of them."""
    stopped = len(run.cases.stopped) + (len(partner.cases.stopped) if partner is not None else 0)
    if not stopped or check.decided == "INCONCLUSIVE":
        return check
    # Stopping does not cause a drop between runs that stopped alike, nor a miss of an exact demand.
    alike = partner is not None and asked_alike(partner.cases, run.cases)
    if check.decided in ("NO-GO", "SUSPECT") and (alike or check.certain or errors.screens):
        return check
    return undecided(
        check,
        f"{plural(stopped, 'case')} stopped once decided, so that the number of answers depends on the answers: for a "
        "gate, sweep without --stop",
    )


def _estimates(
    partner: RunCases, run: RunCases, measure: Measure, alpha: float
) -> tuple[Measured | None, Measured | None]:
    """The change as observed, and the change if all missing answers count against the candidate."""
    pairs, harsh = (pairs_of(partner.cases, run.cases, measure, worst=worst) for worst in (False, True))
    observed, worst = (measured(each, measure, alpha) if each.ids else None for each in (pairs, harsh))
    return observed, at_worst(worst, observed, alpha) if observed and worst else worst


def _enough(check: Check, observed: Measured | None, policy: Policy) -> Check:
    # GATE 6: too few cases prevent only GO; evidence beyond chance still counts.
    cases = observed.estimate.cases if observed else 0
    if cases >= policy.minimum_pairs:
        return check
    return keep_from_go(check, f"{plural(cases, 'case')} in both runs, and the policy wants {policy.minimum_pairs}")


def _notes(
    policy: Policy,
    candidates: Sequence[RunCases],
    past: Sequence[CaseHistory],
    pairs: Mapping[str, Paired],
    errors: Errors,
) -> Iterator[str]:
    both = [(run, pairs[run.called].partner) for run in candidates if run.called in pairs]
    yield from (f"{run.called}: {other}" for run, base in both if (other := run.other_model(base)))
    yield from (f"{run}: {pair.cases.sentence}" for run, pair in pairs.items() if _differ(pair))
    yield from _smallest(policy, candidates, pairs, errors)
    yield from _unnamed(policy, candidates, pairs, errors)
    yield from _uncounted(candidates)
    yield from (f"{run.called}: {each.sentence()}" for run in candidates for each in run.left_out)
    yield from _other_means(policy, candidates)
    yield from _idle(policy, candidates)
    yield from _unchecked_collapse(policy, candidates)
    yield from _flaky(candidates, past)


def _differ(pair: Paired) -> bool:
    return bool(pair.cases.changed_count or pair.cases.gone_count or pair.cases.new_count)


def _smallest(
    policy: Policy, candidates: Sequence[RunCases], pairs: Mapping[str, Paired], errors: Errors
) -> Iterator[str]:
    """The smallest falls that a gate can see, and those that it can show to be beyond the margin (GATE 7)."""
    for gate in policy.gates:
        run = _run_of(gate, candidates)
        measure, pair = gate.measure_in(run.cases.measures), pairs.get(run.called)
        if measure is None or pair is None or measure.name not in pair.partner.cases.columns:
            continue
        both = pairs_of(pair.partner.cases, run.cases, measure)
        for name in CHANGES:
            if not both.ids or getattr(gate, name) is None:
                continue
            change, _ = change_in(both, measure)
            sees, margin = change.detectable(errors.no_go), margin_of(gate, name, float(both.base.mean.mean()))
            yield (
                f"{gate.metric}: this comparison sees a fall from {size(sees, measure)} on (SUSPECT), and shows one "
                f"beyond {size(margin, measure)} from about {size(min(measure.width, margin + sees), measure)} on "
                "(NO-GO), in four of five runs"
            )


def _spent(checks: Sequence[Check], errors: Errors) -> Iterator[str]:
    """Explain falls that only a single comparison would show: they exclude 0, but do not count here."""
    for check in checks:
        p = check.p_worse
        critical = check.tier == "critical" and not check.veto
        if critical and check.decided == "INCONCLUSIVE" and p is not None and errors.no_go < p <= ALPHA:
            yield (
                f"{check.metric}: p is {p:.2g}, which would be SUSPECT at a single comparison ({ALPHA:g}); this one is "
                f"decided at {errors.no_go:.2g}, since all comparisons with a baseline share one error"
            )


def _unnamed(
    policy: Policy, candidates: Sequence[RunCases], pairs: Mapping[str, Paired], errors: Errors
) -> Iterator[str]:
    if policy.worse_cases != "none":
        return
    for run in candidates:
        if (pair := pairs.get(run.called)) is None:
            continue
        for measure in named_measures(policy, run):
            both = pairs_of(pair.partner.cases, run.cases, measure)
            if both.ids and too_few_to_name(both, errors.no_go):
                most = int(both.cand.answers.max())
                few = "one answer a case is" if most == 1 else f"{most} answers a case are"
                yield f"{run.called}.{measure.name}: evalq cannot name a case as worse: {few} too few for that"


def _uncounted(candidates: Sequence[RunCases]) -> Iterator[str]:
    for run in candidates:
        if run.cases.unattributed:
            yield f"{run.called}: {plural(run.cases.unattributed, 'record')} without a case, which evalq cannot count"
        if run.cases.unrecorded:
            count = plural(len(run.cases.unrecorded), "case")
            yield f"{run.called}: {count} without a record: all of their answers are missing"
        lacking = sum(run.cases.missing)
        if lacking:
            count = plural(lacking, "missing answer")
            yield f"{run.called}: {count} (errors, dead, unanswered or left out); they are no scores"


def _other_means(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[str]:
    """Note means that differ from the report's: GATE counts all cases alike, a report may weigh cases or answers."""
    # Demands on single cases alone use no mean.
    by_mean = {gate.metric: gate for gate in policy.gates if gate.about_mean}
    for metric, gate in by_mean.items():
        run = _run_of(gate, candidates)
        measure = gate.measure_in(run.cases.measures)
        level = level_in(run.cases, measure) if measure is not None else None
        in_report = reported(gate.path, run)
        if level is not None and in_report is not None and abs(level.mean - in_report) > _SHOWN_DIGITS * level.width:
            yield (
                f"{metric}: the gate uses {level.mean:.4g}, in which all cases count alike; the report has "
                f"{in_report:.4g}, by the weights of cases or by answers"
            )


def _idle(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[str]:
    """Note demands that hardly any run can fail: ``max_drop: 1`` where one point is meant."""
    for gate in policy.gates:
        measure = gate.measure_in(_run_of(gate, candidates).cases.measures)
        # evalq refuses a larger value.
        if measure is not None and gate.max_drop is not None and gate.max_drop >= measure.width:
            yield (
                f"{gate.metric}: max_drop {gate.max_drop:g} is the whole scale from {measure.low:g} to {measure.high:g}"
                ", which hardly any run can fail"
            )


def _unchecked_collapse(policy: Policy, candidates: Sequence[RunCases]) -> Iterator[str]:
    """Note runs in which evalq cannot look for collapse. If it can in none, that is a check of its own."""
    silent = [] if policy.collapse == "allowed" else [run for run in candidates if not _counts_kinds(run)]
    for run in silent if len(silent) < len(candidates) else []:
        yield f"{run.called}: evalq did not check collapse ({policy.collapse}): the run does not count answers by kind"


def _flaky(candidates: Sequence[RunCases], pasts: Sequence[CaseHistory]) -> Iterator[str]:
    for run, past in zip(candidates, pasts, strict=True):
        if flaky := flaky_cases(past):
            more = f" and {len(flaky) - 10} more" if len(flaky) > 10 else ""
            yield f"{run.called}: {plural(len(flaky), 'case')} flaky by their history: {', '.join(flaky[:10])}{more}"


def collapses(decision: GateDecision) -> list[Check]:
    """The collapsed cases that stop it. A confirmation does not ask for these again."""
    return [check for check in decision.checks if check.demand in (_NONE, _NONE_NEW) and check.decided == "NO-GO"]


def _collapse_checks(
    policy: Policy, run: RunCases, partner: RunCases | None, lacking: str, errors: Errors
) -> Iterator[Check]:
    """Check for collapsed cases, if the policy forbids them and the evaluator can find any."""
    if policy.collapse == "allowed":
        return
    metric, demand = f"{run.called}.collapse", _NONE if policy.collapse == "none" else _NONE_NEW
    if not run.cases.labels:
        # The evaluator counts answers by kind, but read no kind in this run; or it read kinds only in the baseline.
        if run.cases.collapse_p is not None or (partner is not None and partner.cases.labels):
            yield Check(metric, demand, "critical", "INCONCLUSIVE", "no answer has a kind to count it by")
        return
    if policy.collapse == "none":
        yield _any_collapsed(metric, run, errors)
    elif partner is not None:
        yield _newly_collapsed(metric, run, partner, errors)
    elif lacking:
        yield Check(metric, _NONE_NEW, "critical", "INCONCLUSIVE", lacking)
    else:
        raise UsageError("collapse: none-new needs a baseline: --baseline NAME")


def _counts_kinds(run: RunCases) -> bool:
    """Whether a run counts its answers by kind, so that evalq can check for collapse."""
    return bool(run.cases.labels) or run.cases.collapse_p is not None


def _collapse_unknown(policy: Policy, runs: Sequence[RunCases]) -> Iterator[Check]:
    """INCONCLUSIVE if the policy forbids collapse, but no run counts its answers by kind."""
    if policy.collapse == "allowed" or any(map(_counts_kinds, runs)):
        return
    demand = _NONE if policy.collapse == "none" else _NONE_NEW
    reason = "no run counts its answers by kind: count them (checks: --diversity text), or omit `collapse`"
    yield Check("collapse", demand, "critical", "INCONCLUSIVE", reason)


def _any_collapsed(metric: str, run: RunCases, errors: Errors) -> Check:
    """NO-GO if cases are collapsed beyond chance, over all cases by `collapsed_somewhere`; GO if each is diverse."""
    alpha, known = errors.of_collapse, sorted((run.cases.collapse_p or {}).items())
    # Reused answers came from one place, which may have given one answer to many.
    reused = run.lineage is not None and bool(run.lineage.reused)
    found = collapsed_somewhere([p for _, p in known], independent=not reused)
    named = [known[at][0] for at in found.named(alpha)]
    open_ = undecided_collapses(None, run.cases)
    if found.p > alpha:
        return _open(metric, _NONE, run, open_, found.p, errors)
    if named:
        reason = f"{_listed(named, run)} collapsed beyond chance (p {found.p:.2g} over all cases)"
    else:
        reason = (
            f"the cases together are collapsed beyond chance (Fisher's p {found.together:.2g}, {len(known)} cases) and "
            f"no single one can be named; {len(open_)} of them are not decided diverse"
        )
    return _checked(metric, _NONE, "NO-GO", reason, named or open_, found.p, run, errors)


def _newly_collapsed(metric: str, run: RunCases, partner: RunCases, errors: Errors) -> Check:
    """NO-GO for cases that surely collapsed since the baseline; GO if each is diverse now or was collapsed before."""
    alpha = errors.of_collapse
    found = new_collapses(partner.cases, run.cases, alpha)
    p = found[0].adjusted if found else 1.0
    if named := [each.case for each in found if each.adjusted <= alpha]:
        reason = f"{_listed(named, run)} collapsed since the baseline, beyond chance (p {p:.2g} among all cases)"
        return _checked(metric, _NONE_NEW, "NO-GO", reason, named, p, run, errors)
    return _open(metric, _NONE_NEW, run, undecided_collapses(partner.cases, run.cases), p, errors)


def _open(metric: str, demand: str, run: RunCases, open_: Sequence[str], p: float, errors: Errors) -> Check:
    """GO if no case is ``open_``. A lack of surprises is no evidence of diversity."""
    every = len(run.cases.ids) + len(run.cases.unrecorded or ())
    if every and not open_:
        reason = f"each of {plural(every, 'case')} is decided diverse by itself"
        return _checked(metric, demand, "GO", reason, (), p, run, errors)
    reason = (
        f"{_listed(open_, run)} not decided diverse by itself, and nothing collapsed beyond chance (p {p:.2g}): "
        "more answers to a case decide it"
        if every
        else "no case is there"
    )
    return _checked(metric, demand, "INCONCLUSIVE", reason, open_, p, run, errors)


def _checked(
    metric: str,
    demand: str,
    decided: Decided,
    reason: str,
    cases: Sequence[str],
    p: float,
    run: RunCases,
    errors: Errors,
) -> Check:
    # A single answer of a case cannot agree with another, so it is no evidence.
    evidence = sum(answers for labels in run.cases.labels if (answers := sum(labels.values())) > 1)
    return Check(
        metric,
        demand,
        "critical",
        decided,
        reason,
        len(cases),
        cases=tuple(cases[:_KEPT]),
        # A confirmation does not ask for labels again, so collapse then has an error of its own. Else it shares Holm's.
        p_margin=p if errors.collapse is None else None,
        evidence=evidence,
    )


def _listed(cases: Sequence[str], run: RunCases) -> str:
    more = f" and {len(cases) - _NAMED} more" if len(cases) > _NAMED else ""
    every = len(run.cases.ids) + len(run.cases.unrecorded or ())
    return f"{len(cases)} of {plural(every, 'case')} ({', '.join(cases[:_NAMED])}{more})"
