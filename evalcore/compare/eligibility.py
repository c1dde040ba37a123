"""Which runs a gate may compare, and which checks may decide: equal cases, fresh answers, judges with enough labels."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

import msgspec

from evalq.evalcore.compare.comparison import Estimate, Measured
from evalq.evalcore.compare.decision import Check, Decided, FailingCase, GateDecision, PairedCases, named_cases
from evalq.evalcore.compare.intervals import ALPHA, t_tail
from evalq.evalcore.compare.pairs import short_repeats
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import rows_of
from evalq.evalcore.compare.summary import Bag, RunCases, of_cases
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.statistics.agreement import JudgedCase, share, trust_of
from evalq.evalcore.views.markdown import plural

_Answers = Mapping[str, Mapping[int, int]]
_LEAST_CASES, _LEAST_REPEATS = 10, 2
_EMPTY = hashlib.sha256().hexdigest()
_OF_REPORT = 10
_SURE = 0.001
"""The p-value from which on equal answers are copies. It is small, since nobody suspects most runs."""


def same_run(run: RunCases, other: RunCases) -> bool:
    """Whether they are the same run, of which there may be several copies."""
    # A run that wrote nothing is named by its report, so other runs with an equal report have the same name.
    return run.run == other.run and run.run != f"{run.evaluator}-{run.report[:_OF_REPORT]}"


def same_answers(run: RunCases, other: RunCases) -> str:
    """Why the recorded answers of ``run`` are copies of the baseline's, in words; empty if they look fresh.

    evalq compares the digests of files, and of their lines in any order and file. Then it counts the cases with the
    same answers in any order: more than fresh answers would give are copies. Last, over at least 10 cases with 2
    answers or more, it compares the share of equal (case, repeat, answer) with that within the baseline. Live answers
    are always fresh.
    """
    if run.usage is not None:
        return ""
    if run.inputs and run.inputs == other.inputs:
        return "the outputs are the baseline's, byte for byte"
    if run.lines and other.lines and _summed_texts(run.lines) == _summed_texts(other.lines):
        return "the outputs are the baseline's, line for line in another order"
    return _rearranged(run.cases.bags, other.cases.bags) or _repeated(run.cases.answers, other.cases.answers)


def _rearranged(ours: Mapping[str, Bag], theirs: Mapping[str, Bag]) -> str:
    """Compare the cases that have exactly the baseline's answers, in any order."""
    both = [(ours[case].whole == bag.whole, bag.chance) for case, bag in theirs.items() if case in ours]
    equal = sum(same for same, _ in both)
    # The distribution of how many are equal by chance; each chance is the largest that fresh answers can have.
    chances = [1.0]
    for _, chance in both:
        chances = [
            more * chance + less * (1 - chance) for more, less in zip([0.0, *chances], [*chances, 0.0], strict=True)
        ]
    if not equal or math.fsum(chances[equal:]) > _SURE:
        return ""
    return f"the answers to {plural(equal, 'case')} are the baseline's, in another order or the same"


def _repeated(ours: _Answers, theirs: _Answers) -> str:
    excess = _excess(ours, theirs)
    if len(excess) < _LEAST_CASES:
        return ""
    mean = math.fsum(excess) / len(excess)
    variance = math.fsum((each - mean) ** 2 for each in excess) / (len(excess) - 1) / len(excess)
    # Without any variance the share decides: in each case all answers are equal, and none were within the baseline.
    if mean <= 0 or (variance > 0 and t_tail(mean / math.sqrt(variance), len(excess) - 1) > _SURE):
        return ""
    return (
        f"more answers are equal to the baseline's, repeat by repeat, than equal each other there ({len(excess)} cases)"
    )


def _summed_texts(lines: Iterable[str]) -> str:
    """The digest of all lines of several files, from the digest of each file: "COUNT-SUM"."""
    counts, sums = zip(
        *((int(count), int(whole, 16)) for count, _, whole in (each.partition("-") for each in lines)), strict=True
    )
    return f"{sum(counts)}-{sum(sums) % (1 << 128):032x}"


def doubled(run: RunCases) -> str:
    """Which answers of ``run`` count several times, in words; empty if evalq knows of none.

    A file with two names, also with its lines in another order, gives each answer twice. So does a file whose answers
    are in another file, too, which their calls show.
    """
    digests = [each for each in run.inputs if each != _EMPTY]
    if copies := len(digests) - len(set(digests)):
        return f"{plural(copies, 'file')} with the bytes of another one"
    if copies := len(run.lines) - len(set(run.lines)):
        return f"{plural(copies, 'file')} with the lines of another one, in another order"
    return f"at least {plural(run.doubled, 'answer')} in several files" if run.doubled else ""


def _excess(ours: _Answers, theirs: _Answers) -> list[float]:
    """By case, the share of repeats with the baseline's answer, less the share of equal answers within the baseline."""
    excess = []
    for case, answers in ours.items():
        before = theirs.get(case, {})
        both = answers.keys() & before.keys()
        if len(before) < _LEAST_REPEATS or len(both) < _LEAST_REPEATS:
            continue
        counts = Counter(before.values())
        pairs = len(before) * (len(before) - 1)
        within = sum(count * (count - 1) for count in counts.values()) / pairs
        excess.append(sum(answers[at] == before[at] for at in both) / len(both) - within)
    return excess


# Which cases two runs have in common: cases with the same id and the same specification.

_LEAST_EQUAL = 0.9
"""The share of the baseline's cases that must be equal, unless the policy says ``specification: intersection``."""
_SHOWN = 20


class Paired(msgspec.Struct, frozen=True):
    """A baseline cut to its candidate: ``partner`` has only the equal cases, ``cases`` counts them and the others."""

    partner: RunCases
    cases: PairedCases


def paired_all(candidates: Sequence[RunCases], partners: Mapping[str, RunCases]) -> dict[str, Paired]:
    """{the candidate's name: its partner, cut to the equal cases}, for each candidate that has a partner."""
    return {run.called: paired(run, partners[run.called]) for run in candidates if run.called in partners}


def paired(run: RunCases, partner: RunCases) -> Paired:
    """``partner`` with the cases that are equal in ``run``: by id, and by the digest of input and checks.

    A case without digests is equal by its id. A case that ``run`` does not ask is unpaired. If ``run`` asks it, or may
    ask it, but has no record of it, the case is equal, and its answers are missing.
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
        partner.run,
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
    cases = of_cases(partner.cases, [case for case in partner.cases.ids if case in kept])
    return Paired(msgspec.structs.replace(partner, cases=cases), counts)


def with_short(
    candidates: Sequence[RunCases], partners: Mapping[str, RunCases], *, uneven: bool = False
) -> tuple[list[RunCases], dict[str, dict[str, int]]]:
    """The candidates with the repeats that a case has fewer than others counted as missing, and {candidate: these}.

    Only for recorded outputs, since a live run records each of its calls. ``uneven``: cases differ on purpose.
    """
    short: dict[str, dict[str, int]] = {}
    whole = []
    for run in candidates:
        base = partners.get(run.called)
        lacks = {} if uneven or run.target or run.usage is not None else _short_of(run, base)
        short[run.called] = lacks
        if lacks:
            missing = [count + lacks.get(case, 0) for case, count in zip(run.cases.ids, run.cases.missing, strict=True)]
            whole.append(msgspec.structs.replace(run, cases=msgspec.structs.replace(run.cases, missing=missing)))
        else:
            whole.append(run)
    return whole, short


def _short_of(run: RunCases, base: RunCases | None) -> dict[str, int]:
    return short_repeats(run.cases, base.cases if base is not None else None)


def other_rules(run: RunCases, partner: RunCases) -> str:
    """The rules of the baseline that differ from the candidate's, beside its cases; empty if none differ."""
    if run.version != partner.version:
        return "another version"
    listed = run.cases.specified and partner.cases.specified
    if run.specification == partner.specification or (listed and run.parameters == partner.parameters):
        return ""
    return "other parameters" if listed else "another golden set or other parameters"


def specification_checks(policy: Policy, run: RunCases, partner: RunCases, cases: PairedCases) -> Iterator[Check]:
    """INCONCLUSIVE if the runs are too different to compare, unless the policy compares the intersection."""
    if policy.specification == "intersection":
        return
    demand, advice = "the specification of the baseline", "approve a new one, or allow it (specification: intersection)"
    if what := other_rules(run, partner):
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", f"the baseline has {what}: {advice}", change=True)
    elif cases.equal < _LEAST_EQUAL * cases.base:
        reason = f"{cases.sentence}; 90 % of the baseline's have to be equal: {advice}"
        others = (*cases.changed, *cases.gone)[:_SHOWN]
        yield Check(run.called, demand, "critical", "INCONCLUSIVE", reason, cases=others, change=True)


def _every(run: RunCases) -> list[str]:
    # With the golden set's cases that nobody recorded.
    return sorted({*run.cases.ids, *(run.cases.unrecorded or ())})


def _has(case: str, run: RunCases, asked: set[str], partner: RunCases) -> bool:
    """Whether ``run`` asks ``case``, as far as evalq knows: by the list of its cases, or by an equal golden set."""
    # Without a list of cases, runs with the same specification ask the same cases.
    return case in asked or (not run.cases.specified and run.specification == partner.specification)


# Demands that rest on judges: they decide only if people's labels show that the judges are good enough.

_NAMED = 5
_SMALLEST, _HALVINGS = -12.0, 24
"""The smallest error to try, as a power of ten, and how many times to halve the range up to one half."""
_Rows = Mapping[str, tuple[int, int, int, int, int, int]]


def on_trust(
    checks: Iterable[Check], path: str, policy: Policy, run: RunCases, partner: RunCases | None
) -> Iterator[Check]:
    """The checks of the number at ``path``, made advisory if labels do not support the judges that it rests on.

    If labels support them, the reason says how far judges and people agree.
    """
    why, agreement = why_advisory(path, policy, run, partner), _agreement(path, policy, run, partner)
    for check in checks:
        if why and check.tier != "advisory":
            yield msgspec.structs.replace(check, tier="advisory", reason=f"{check.reason}; advisory: {why}")
        else:
            yield msgspec.structs.replace(check, reason=f"{check.reason}; {agreement}") if agreement else check


def why_advisory(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    """Why the number at ``path`` in the results decides nothing; empty if it may decide.

    Labels of the baseline count, too, if it has the same judges with the same prompts. So people need not label every
    candidate anew.
    """
    judged = run.cases.judged
    if judged is None or policy.judges == "decide" or not judged.affects(path):
        return ""
    if policy.judges == "advisory":
        return "it rests on judges (judges: advisory)"
    drawn = policy.labels == "by_verdict"
    reasons = {
        check: trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error, by_verdict=drawn).why
        for check in sorted(judged.labels)
    }
    lacking = [f"{check}: {why}" for check, why in reasons.items() if why]
    if not lacking:
        return ""
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"it rests on judges that people's labels do not bear out ({'; '.join(lacking[:_NAMED])}{more})"


def old_labels(
    policy: Policy, candidates: Iterable[RunCases], partners: Mapping[str, RunCases], today: str
) -> Iterator[str]:
    """A sentence for each run with labels of judges that are older than the policy allows.

    Labels are in the report of the run that they are about, so its first day gives their age.
    """
    if policy.judges != "labelled" or not today:
        return
    warned: set[str] = set()
    for run in candidates:
        partner = partners.get(run.called)
        for side in (run, partner):
            if side is None or side.run in warned or not any(_rows_of(side, run).values()):
                continue
            age = _days_between(side.day, today)
            if age > policy.labels_days:
                warned.add(side.run)
                yield (
                    f"{run.called}: the labels that its judges are trusted by are of run {side.run}, which began on "
                    f"{side.day}, {age:,} days ago (labels_days: {policy.labels_days}); label a new random sample"
                )


def _days_between(day: str, today: str) -> int:
    # A run's folder may hold anything, since anybody may have written to it.
    try:
        return (date.fromisoformat(today) - date.fromisoformat(day)).days
    except ValueError:
        return 0


def _agreement(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    judged = run.cases.judged
    if judged is None or not judged.affects(path):
        return ""
    sentences = []
    for check in sorted(judged.labels)[:_NAMED]:
        trust = trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error)
        if trust.agreement.value is not None and trust.agreement.interval is not None:
            low, high = trust.agreement.interval
            sentences.append(
                f"{check} agrees with people in {trust.agreement.value:.1%} of {trust.labels} labels "
                f"({low:.1%} to {high:.1%})"
            )
    return "; ".join(sentences)


def _rows(check: str, run: RunCases, partner: RunCases | None) -> list[JudgedCase]:
    """The labels of a check by case, with the baseline's if it has the same judges with the same prompts."""
    return _added([_rows_of(side, run).get(check, {}) for side in (run, partner) if side is not None])


def _rows_of(side: RunCases, run: RunCases) -> Mapping[str, _Rows]:
    """The labels in ``side``, by check, if its judges are those of ``run``; otherwise none."""
    ours, theirs = run.cases.judged, side.cases.judged
    return theirs.labels if ours is not None and theirs is not None and theirs.by == ours.by else {}


def _added(sides: Sequence[_Rows]) -> list[JudgedCase]:
    # Add them by case, since labels of one case are alike in both runs.
    cases = sorted({case for side in sides for case in side})
    return [JudgedCase(*map(sum, zip(*(side[case] for side in sides if case in side), strict=True))) for case in cases]


class CorrectedChange(NamedTuple):
    """A change of what judges pass, as people would see it: the judged change, divided by how well judges tell.

    A judge that passes what people pass in a share s, and what they fail in a share f, shows s - f of each change
    (Rogan and Gladen 1978). Both intervals have half of the error.
    """

    raw: Measured
    rows: Sequence[JudgedCase]
    alpha: float

    @property
    def estimate(self) -> Estimate:
        """The raw estimate with the corrected interval, which alone decides whether the number fell."""
        low, high = self._interval(self.alpha)
        return msgspec.structs.replace(self.raw.estimate, low=low, high=high, p_worse=self.p_margin(0.0))

    def p_margin(self, margin: float) -> float:
        """The smallest error at which the corrected interval lies below a fall of ``margin``."""

        def shown(alpha: float) -> bool:
            return self._interval(alpha)[1] < -margin

        if not shown(0.5):
            return 1.0
        least, most = _SMALLEST, math.log10(0.5)
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            least, most = (least, middle) if shown(10**middle) else (middle, most)
        return float(10**most)

    def _interval(self, alpha: float) -> tuple[float, float]:
        width = self.raw.change.width
        low, high = self.raw.change.interval(alpha / 2)
        least, most = self._telling(alpha / 2)
        if least <= 0:
            return -width, width
        ends = low / (least if low < 0 else most), high / (least if high > 0 else most)
        return max(-width, ends[0]), min(width, ends[1])

    def _telling(self, alpha: float) -> tuple[float, float]:
        """The bounds of s - f: each of the two errors of a judge has half of ``alpha``."""
        answered = sum(bool(row.answers) for row in self.rows)
        wrong = [(row.false_pass, row.false_pass + row.neither) for row in self.rows]
        missed = [(row.false_fail, row.false_fail + row.both) for row in self.rows]
        errors = [share(each, answered, alpha / 2).interval for each in (wrong, missed)]
        if errors[0] is None or errors[1] is None:
            return 0.0, 1.0
        return 1 - errors[0].high - errors[1].high, 1 - errors[0].low - errors[1].low


def corrected(
    found: Measured | None, path: str, policy: Policy, run: RunCases, partner: RunCases, alpha: float = ALPHA
) -> Measured | CorrectedChange | None:
    """The change as people would see it, if it rests on judges that decide by their labels; otherwise unchanged."""
    judged = run.cases.judged
    if (
        found is None
        or judged is None
        or policy.judges != "labelled"
        or not judged.affects(path)
        or path != "pass_rate"
    ):
        return found
    before = partner.cases.judged
    sides: list[_Rows] = [judged.outputs]
    if before is not None and before.by == judged.by:
        sides.append(before.outputs)
    if not any(sides) and len(judged.labels) == 1:
        # With a single check, an answer passes if the check does.
        return CorrectedChange(found, _rows(next(iter(judged.labels)), run, partner), alpha)
    return CorrectedChange(found, _added(sides), alpha)


def nothing_decides(policy: Policy, checks: Sequence[Check]) -> Iterator[Check]:
    """INCONCLUSIVE if all critical demands rest on judges and are advisory: no demand would be left to say no."""
    # Count only the policy's own demands: the check of missing answers needs no judge, but says nothing else.
    metrics = {gate.metric for gate in policy.gates if gate.tier == "critical"}
    demanded = [check for check in checks if check.metric in metrics]
    if demanded and not any(check.tier == "critical" for check in demanded):
        reason = (
            "all critical demands rest on judges, and are advisory: label a random sample, or put "
            "`judges: decide` into the policy"
        )
        yield Check("judges", "something that decides", "critical", "INCONCLUSIVE", reason)


# Recorded runs compared case by case, without any statistics: every case that passed before has to pass now.

_STILL_PASSES = "every case that passed before passes"
_STILL_ANSWERED = "every case that passed before has an answer"
_ALL_ANSWERED = "every case that passed before has all of its answers"
_NOTHING_IN_BOTH = 5
"""The exit code if no case can be compared, as for a run without any result."""
_ORDER: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE", "GO")
_NAMED_CASES = 10
_MOSTLY_SAME = "at least half of the baseline's cases are asked in the same way"


class _CaseChanges(NamedTuple):
    """The cases of one run and its baseline: how many are in both, which fail now, and which have no answer now.

    In the cases of ``partly``, some answers are missing now. ``equal`` of the baseline's ``base`` cases have the same
    input and checks now.
    """

    both: int
    fails: list[str]
    unanswered: list[str]
    partly: list[str]
    equal: int
    base: int


def recorded_once(run: RunCases, partner: RunCases) -> bool:
    """Whether both have at most one answer a case, each a pass or a failure: too few for statistics of single cases."""
    for each in (run, partner):
        measure = pass_measure(each.cases.measures)
        if measure is None or any(count > 1 for count in each.cases.columns[measure.name].count):
            return False
    return True


def as_recorded(
    policy: Policy,
    candidates: Sequence[RunCases],
    partners: Mapping[str, RunCases],
    statistical: GateDecision,
    runs: Collection[str],
    *,
    written: bool = True,
) -> GateDecision:
    """The decision on ``runs`` (their names) as recorded, with the ``statistical`` one beside it.

    A case passes if all of its recorded answers pass. NO-GO names the cases that passed before and fail now.
    INCONCLUSIVE names the cases that have no answer now, asked or not (unless the policy compares the intersection),
    and those that lack some of their answers. New and changed cases are listed. A run in which most cases differ from
    the baseline's is INCONCLUSIVE. If no case is in both runs, the exit code is 5.

    The statistical checks of the same question become advisory: whether passes fell, and what must be equal for that.
    All other demands of the policy (bounds, single cases, collapse, other numbers) stay as statistics decide them. If
    the policy is not ``written`` by anybody, all statistical checks of these runs become advisory.
    """
    recorded: list[Check] = []
    replaced: set[str] = set()
    both = 0
    equal: list[str] = []
    for run in with_short(candidates, partners, uneven=policy.uneven_repeats)[0]:
        partner = partners.get(run.called)
        if run.called not in runs or partner is None:
            continue
        changes = _case_changes(policy, run, partner)
        both += changes.both
        measure = pass_measure(run.cases.measures)
        path = measure.name if measure is not None else ""
        replaced |= {f"{name}{end}" for name in (run.called, run.evaluator) for end in ("", f".{path}")}
        recorded += on_trust(_checks(f"{run.called}.{path}", changes, policy), path, policy, run, partner)
        if same := same_answers(run, partner):
            equal.append(f"{run.called}: {same} (equal files)")
    beside = [_beside(check, runs, replaced, written) for check in statistical.checks]
    verdicts = {check.decided for check in (*recorded, *beside) if check.tier == "critical"}
    nothing = "no case is in both runs, so that there is nothing to compare"
    notes = ([nothing] if not both else []) + equal
    by_statistics = f"as recorded; by statistics it would be {statistical.decided}"
    return msgspec.structs.replace(
        statistical,
        decided="INCONCLUSIVE" if not both or not verdicts else min(verdicts, key=_ORDER.index),
        checks=(*recorded, *beside),
        notes=(by_statistics, *notes, *statistical.notes),
        exit_with=_NOTHING_IN_BOTH if not both else None,
        failing=_named_anew(statistical.failing, recorded),
    )


def _named_anew(failing: Sequence[FailingCase], checks: Sequence[Check]) -> tuple[FailingCase, ...]:
    cases = [msgspec.structs.replace(each, named=each.case in named_cases(checks, each.run)) for each in failing]
    return tuple(sorted(cases, key=lambda each: not each.named))


def _case_changes(policy: Policy, run: RunCases, partner: RunCases) -> _CaseChanges:
    pair = paired(run, partner)
    ours, theirs, before = _passing(pair.partner), _passing(run), _passing(partner)
    passed = [case for case, passes in ours.items() if passes]
    # Count a case that the run no longer asks, too: otherwise a failing case would pass by a change of its name.
    asked = {*run.cases.ids, *(run.cases.unrecorded or ())}
    gone = [case for case, passes in before.items() if passes and case not in ours and case not in asked]
    lacks = _lacking(run) - _lacking(partner)
    return _CaseChanges(
        sum(case in theirs for case in ours),
        [case for case in passed if theirs.get(case) is False],
        [case for case in passed if case not in theirs] + ([] if policy.specification == "intersection" else gone),
        [case for case in passed if theirs.get(case) and case in lacks],
        pair.cases.equal,
        pair.cases.base,
    )


def _lacking(run: RunCases) -> set[str]:
    return {case for case, missing in zip(run.cases.ids, run.cases.missing, strict=True) if missing}


def _passing(run: RunCases) -> dict[str, bool]:
    """{case that has an answer: whether all of them pass}."""
    measure = pass_measure(run.cases.measures)
    rows = rows_of(run.cases, measure) if measure is not None else []
    return {row.case: row.passed == row.answers for row in rows if row.answers}


def _checks(metric: str, changes: _CaseChanges, policy: Policy) -> Iterator[Check]:
    both = changes.both
    if not both or (policy.specification == "same" and 2 * changes.equal < changes.base):
        reason = (
            f"{changes.equal} of the baseline's {plural(changes.base, 'case')} have the same input and checks now, "
            f"{both} have answers in both runs: approve a new baseline"
        )
        yield Check(metric, _MOSTLY_SAME, "critical", "INCONCLUSIVE", reason, changes.equal, evidence=both)
    for demand, cases, broken, what in (
        (_STILL_PASSES, changes.fails, "NO-GO", "passed before and failed now"),
        (_STILL_ANSWERED, changes.unanswered, "INCONCLUSIVE", "passed before and got no answer now"),
        (_ALL_ANSWERED, changes.partly, "INCONCLUSIVE", "passed before and lack some of their answers now"),
    ):
        # Say nothing of repeats where there are none.
        if demand == _ALL_ANSWERED and not cases:
            continue
        decided: Decided = "GO" if not cases else "NO-GO" if broken == "NO-GO" else "INCONCLUSIVE"
        more = " ..." if len(cases) > _NAMED_CASES else ""
        names = f": {', '.join(cases[:_NAMED_CASES])}{more}" if cases else ""
        reason = f"{plural(len(cases), 'case')} {what}{names}; {both} in both runs"
        yield Check(metric, demand, "critical", decided, reason, len(cases), cases=tuple(cases), evidence=both)


def _beside(check: Check, runs: Collection[str], replaced: Collection[str], written: bool) -> Check:
    """A statistical check, made advisory if the recorded answers decide the same question for one of ``runs``.

    ``replaced`` has the metrics that recorded answers decide: these runs and their pass rates, as a policy names them.
    """
    about = any(check.metric == run or check.metric.startswith(f"{run}.") for run in runs)
    advisory = check.change and check.metric in replaced if written else about
    return msgspec.structs.replace(check, tier="advisory") if advisory and check.tier == "critical" else check
