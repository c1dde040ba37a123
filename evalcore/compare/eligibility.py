"""Which runs a gate may compare, and what decides: common cases, answers of their own, judges that labels bear out."""

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
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.single_cases import rows_of
from evalq.evalcore.compare.summary import Bag, RunCases, of_cases
from evalq.evalcore.contract.measures import pass_measure
from evalq.evalcore.statistics.agreement import JudgedCase, share, trust_of

_Answers = Mapping[str, Mapping[int, int]]
_LEAST_CASES, _LEAST_REPEATS = 10, 2
_EMPTY = hashlib.sha256().hexdigest()
_OF_REPORT = 10
_SURE = 0.001
"""How surprising a share of equal answers has to be, for runs that nobody would suspect otherwise."""


def same_run(run: RunCases, other: RunCases) -> bool:
    """Whether they are one run, of which there may be several copies: nothing tells a run from itself."""
    # What wrote nothing is called by its report, as any other run that found the same is.
    return run.run == other.run and run.run != f"{run.evaluator}-{run.report[:_OF_REPORT]}"


def same_answers(run: RunCases, other: RunCases) -> str:
    """Why the recorded answers of ``run`` are copies of the baseline's, in words; empty where they look like its own.

    By the digests of their files, or of all lines in them, in whichever order and files these stand; by cases whose
    answers are the baseline's in any order, more of them than answers of their own could be; or, over at least 10 cases
    with 2 answers or more, by a share of equal (case, repeat, answer) beyond the share of equal answers within the
    baseline. Live answers have attempts of their own, and are a candidate's own, equal or not.
    """
    if run.usage is not None:
        return ""
    if run.inputs and run.inputs == other.inputs:
        return "the outputs are the baseline's, byte for byte"
    if run.lines and other.lines and _summed_texts(run.lines) == _summed_texts(other.lines):
        return "the outputs are the baseline's, line for line in another order"
    return _rearranged(run.cases.bags, other.cases.bags) or _repeated(run.cases.answers, other.cases.answers)


def _rearranged(ours: Mapping[str, Bag], theirs: Mapping[str, Bag]) -> str:
    """By cases that have the baseline's answers, all of them and no others."""
    both = [(ours[case].whole == bag.whole, bag.chance) for case, bag in theirs.items() if case in ours]
    equal = sum(same for same, _ in both)
    # How likely that many are equal, if each is as likely as it can be for answers of its own.
    chances = [1.0]
    for _, chance in both:
        chances = [
            more * chance + less * (1 - chance) for more, less in zip([0.0, *chances], [*chances, 0.0], strict=True)
        ]
    if not equal or math.fsum(chances[equal:]) > _SURE:
        return ""
    return f"the answers to {equal} case(s) are the baseline's, in another order or the same"


def _repeated(ours: _Answers, theirs: _Answers) -> str:
    excess = _excess(ours, theirs)
    if len(excess) < _LEAST_CASES:
        return ""
    mean = math.fsum(excess) / len(excess)
    variance = math.fsum((each - mean) ** 2 for each in excess) / (len(excess) - 1) / len(excess)
    # Where all cases are alike the share itself says it: each is equal throughout, and none was within the baseline.
    if mean <= 0 or (variance > 0 and t_tail(mean / math.sqrt(variance), len(excess) - 1) > _SURE):
        return ""
    return (
        f"more answers are equal to the baseline's, repeat by repeat, than equal each other there ({len(excess)} cases)"
    )


def _summed_texts(lines: Iterable[str]) -> str:
    """The digest of all lines of several files, in whichever of them they are, from that of each: "COUNT-SUM"."""
    counts, sums = zip(
        *((int(count), int(whole, 16)) for count, _, whole in (each.partition("-") for each in lines)), strict=True
    )
    return f"{sum(counts)}-{sum(sums) % (1 << 128):032x}"


def doubled(run: RunCases) -> str:
    """Which answers of ``run`` count several times, in words; empty where none is known to.

    A file that is there under two names, also with its lines in another order, has each of its answers twice, and
    proves with them what it does not. So has one whose answers, told by their calls, are in another file, too.
    """
    digests = [each for each in run.inputs if each != _EMPTY]
    if copies := len(digests) - len(set(digests)):
        return f"{copies} file(s) have the bytes of another one"
    if copies := len(run.lines) - len(set(run.lines)):
        return f"{copies} file(s) have the lines of another one, in another order"
    return f"{run.doubled} answer(s) or more are in several files" if run.doubled else ""


def _excess(ours: _Answers, theirs: _Answers) -> list[float]:
    """For each case the share of repeats whose answer is the baseline's, less that of equal answers within it."""
    found = []
    for case, answers in ours.items():
        before = theirs.get(case, {})
        both = answers.keys() & before.keys()
        if len(before) < _LEAST_REPEATS or len(both) < _LEAST_REPEATS:
            continue
        counts = Counter(before.values())
        pairs = len(before) * (len(before) - 1)
        within = sum(count * (count - 1) for count in counts.values()) / pairs
        found.append(sum(answers[at] == before[at] for at in both) / len(both) - within)
    return found


# Which cases two runs have in common: those of one id and one specification, which are all that can be compared.

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


# Demands that rest on verdicts of judges: these decide as far as people's labels bear them out.

_NAMED = 5
_SMALLEST, _HALVINGS = -12.0, 24
"""The smallest error that is looked at, as a power of ten, and how often the range up to a half is halved."""
_Rows = Mapping[str, tuple[int, int, int, int, int, int]]


def on_trust(
    checks: Iterable[Check], path: str, policy: Policy, run: RunCases, partner: RunCases | None
) -> Iterator[Check]:
    """Checks of what stands at ``path``, advisory where they rest on judges that people's labels do not bear out.

    Where they do, how far judge and people agree stands in the reason.
    """
    why, told = why_advisory(path, policy, run, partner), _agreement(path, policy, run, partner)
    for check in checks:
        if why and check.tier != "advisory":
            yield msgspec.structs.replace(check, tier="advisory", reason=f"{check.reason}; advisory: {why}")
        else:
            yield msgspec.structs.replace(check, reason=f"{check.reason}; {told}") if told else check


def why_advisory(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    """Why what stands at ``path`` in the results decides nothing; empty where it may.

    Labels of the baseline count, too, where the same judges were asked by the same words: a judge that people were
    compared with once need not be labelled anew with every candidate.
    """
    judged = run.cases.judged
    if judged is None or policy.judges == "decide" or not judged.rests(path):
        return ""
    if policy.judges == "advisory":
        return "it rests on judges (judges: advisory)"
    drawn = policy.labels == "by_verdict"
    found = {
        check: trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error, by_verdict=drawn).why
        for check in sorted(judged.labels)
    }
    lacking = [f"{check}: {why}" for check, why in found.items() if why]
    if not lacking:
        return ""
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    return f"it rests on judges that people's labels do not bear out ({'; '.join(lacking[:_NAMED])}{more})"


def old_labels(
    policy: Policy, candidates: Iterable[RunCases], partners: Mapping[str, RunCases], today: str
) -> Iterator[str]:
    """A sentence for each run whose labels bear out judges, and are surely older than the policy has them.

    A label is about an answer of its run, and is in its report: what began so long ago has no younger ones.
    """
    if policy.judges != "labelled" or not today:
        return
    told: set[str] = set()
    for run in candidates:
        partner = partners.get(run.called)
        for side in (run, partner):
            if side is None or side.run in told or not any(_rows_of(side, run).values()):
                continue
            age = _days_between(side.day, today)
            if age > policy.labels_days:
                told.add(side.run)
                yield (
                    f"{run.called}: the labels that its judges are trusted by are of run {side.run}, which began on "
                    f"{side.day}, {age:,} days ago (labels_days: {policy.labels_days}); label a new random sample"
                )


def _days_between(day: str, today: str) -> int:
    """0 where nobody knows: a run's folder may have been written to by anybody."""
    try:
        return (date.fromisoformat(today) - date.fromisoformat(day)).days
    except ValueError:
        return 0


def _agreement(path: str, policy: Policy, run: RunCases, partner: RunCases | None) -> str:
    judged = run.cases.judged
    if judged is None or not judged.rests(path):
        return ""
    told = []
    for check in sorted(judged.labels)[:_NAMED]:
        trust = trust_of(_rows(check, run, partner), policy.minimum_labels, policy.judge_error)
        if trust.agreement.value is not None and trust.agreement.interval is not None:
            low, high = trust.agreement.interval
            told.append(
                f"{check} agrees with people in {trust.agreement.value:.1%} of {trust.labels} labels "
                f"({low:.1%} to {high:.1%})"
            )
    return "; ".join(told)


def _rows(check: str, run: RunCases, partner: RunCases | None) -> list[JudgedCase]:
    """The labels of a check by case, those of the baseline with them where the same judges were asked alike."""
    return _added([_rows_of(side, run).get(check, {}) for side in (run, partner) if side is not None])


def _rows_of(side: RunCases, run: RunCases) -> Mapping[str, _Rows]:
    """The labels in ``side`` that tell of the judges of ``run``, by check: its own, and those of the same judges."""
    asked, found = run.cases.judged, side.cases.judged
    return found.labels if asked is not None and found is not None and found.by == asked.by else {}


def _added(sides: Sequence[_Rows]) -> list[JudgedCase]:
    # By case: labels of one case are alike, whichever run they are of.
    cases = sorted({case for side in sides for case in side})
    return [JudgedCase(*map(sum, zip(*(side[case] for side in sides if case in side), strict=True))) for case in cases]


class CorrectedChange(NamedTuple):
    """A change of what judges pass, as people would see it: what was judged, divided by how well judges tell.

    A judge that passes what people pass in a share s, and what they fail in a share f, shows s - f of each change
    (Rogan and Gladen 1978). Both intervals have half of the error.
    """

    raw: Measured
    rows: Sequence[JudgedCase]
    alpha: float

    @property
    def estimate(self) -> Estimate:
        """The raw one with the corrected interval; whether it fell at all is told by that interval alone."""
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
        """Where s - f lies: each of the two errors of a judge has half of ``alpha``."""
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
    """The change as people would see it, where it rests on judges that decide by their labels; else as it is."""
    judged = run.cases.judged
    if found is None or judged is None or policy.judges != "labelled" or not judged.rests(path) or path != "pass_rate":
        return found
    before = partner.cases.judged
    sides: list[_Rows] = [judged.outputs]
    if before is not None and before.by == judged.by:
        sides.append(before.outputs)
    if not any(sides) and len(judged.labels) == 1:
        # Of a single check whole answers pass as it does.
        return CorrectedChange(found, _rows(next(iter(judged.labels)), run, partner), alpha)
    return CorrectedChange(found, _added(sides), alpha)


def nothing_decides(policy: Policy, checks: Sequence[Check]) -> Iterator[Check]:
    """INCONCLUSIVE where all that the policy holds critical rests on judges: nothing would be left to say no."""
    # Only what its author holds critical: that answers are missing says no without any judge, and says nothing else.
    metrics = {gate.metric for gate in policy.gates if gate.tier == "critical"}
    own = [check for check in checks if check.metric in metrics]
    if own and not any(check.tier == "critical" for check in own):
        reason = (
            "all critical demands rest on judges, and are advisory: label a random sample, or put "
            "`judges: decide` into the policy"
        )
        yield Check("judges", "something that decides", "critical", "INCONCLUSIVE", reason)


# Recorded runs held to each other case by case, without any statistics: what passed before has to pass now.

_STILL_PASSES = "every case that passed before passes"
_STILL_ANSWERED = "every case that passed before has an answer"
_NOTHING_IN_BOTH = 5
"""The exit code where nothing can be held to anything, as of a run without any result."""
_ORDER: Sequence[Decided] = ("NO-GO", "SUSPECT", "INCONCLUSIVE", "GO")
_TOLD = 10
_MOSTLY_SAME = "at least half of the baseline's cases are asked in the same way"


class _Held(NamedTuple):
    """The cases of one run and its baseline: those in both, those that fail now, and those without an answer now.

    ``equal`` of the ``base`` cases that the baseline has are asked in the same way now.
    """

    both: int
    fails: list[str]
    unanswered: list[str]
    equal: int
    base: int


def recorded_once(run: RunCases, partner: RunCases) -> bool:
    """Whether both have one answer a case at most, by passing or failing: too little for statistics of single cases."""
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
    """The decision on ``runs`` (by what they are called) as recorded, with the ``statistical`` one beside it.

    A case passed if all of its recorded answers pass. NO-GO names those that passed before and fail now, INCONCLUSIVE
    those that have no answer now, whether they are asked still or not (unless the policy compares the intersection).
    New and changed cases are listed. A run of which most cases differ from the baseline's is INCONCLUSIVE. Where no
    case is in both the exit code is 5.

    Set aside is what this decides in its own way: whether passes fell, and what has to be the same for that. All else
    that the policy demands (bounds, single cases, collapse, other numbers) stays as statistics decide it, unless nobody
    has ``written`` that.
    """
    own: list[Check] = []
    held_to: set[str] = set()
    both = 0
    equal: list[str] = []
    for run in candidates:
        partner = partners.get(run.called)
        if run.called not in runs or partner is None:
            continue
        held = _held(policy, run, partner)
        both += held.both
        measure = pass_measure(run.cases.measures)
        path = measure.name if measure is not None else ""
        held_to |= {f"{name}{end}" for name in (run.called, run.evaluator) for end in ("", f".{path}")}
        own += on_trust(_checks(f"{run.called}.{path}", held, policy), path, policy, run, partner)
        if same := same_answers(run, partner):
            equal.append(f"{run.called}: {same} (equal files)")
    beside = [_beside(check, runs, held_to, written) for check in statistical.checks]
    words = {check.decided for check in (*own, *beside) if check.tier == "critical"}
    nothing = "no case is in both runs: nothing can be held to anything"
    notes = ([nothing] if not both else []) + equal
    told = f"as recorded; by statistics it would be {statistical.decided}"
    return msgspec.structs.replace(
        statistical,
        decided="INCONCLUSIVE" if not both or not words else min(words, key=_ORDER.index),
        checks=(*own, *beside),
        notes=(told, *notes, *statistical.notes),
        exit_with=_NOTHING_IN_BOTH if not both else None,
        failing=_named_anew(statistical.failing, own),
    )


def _named_anew(failing: Sequence[FailingCase], checks: Sequence[Check]) -> tuple[FailingCase, ...]:
    found = [msgspec.structs.replace(each, named=each.case in named_cases(checks, each.run)) for each in failing]
    return tuple(sorted(found, key=lambda each: not each.named))


def _held(policy: Policy, run: RunCases, partner: RunCases) -> _Held:
    pair = paired(run, partner)
    ours, theirs, before = _passing(pair.partner), _passing(run), _passing(partner)
    passed = [case for case, passes in ours.items() if passes]
    # A case that is asked no more has no answer either: else a case that fails would pass under another name.
    asked = {*run.cases.ids, *(run.cases.unrecorded or ())}
    gone = [case for case, passes in before.items() if passes and case not in ours and case not in asked]
    return _Held(
        sum(case in theirs for case in ours),
        [case for case in passed if theirs.get(case) is False],
        [case for case in passed if case not in theirs] + ([] if policy.specification == "intersection" else gone),
        pair.cases.equal,
        pair.cases.base,
    )


def _passing(run: RunCases) -> dict[str, bool]:
    """{case that has an answer: whether all of them pass}."""
    measure = pass_measure(run.cases.measures)
    rows = rows_of(run.cases, measure) if measure is not None else []
    return {row.case: row.passed == row.answers for row in rows if row.answers}


def _checks(metric: str, held: _Held, policy: Policy) -> Iterator[Check]:
    if not held.both or (policy.specification == "same" and 2 * held.equal < held.base):
        reason = (
            f"{held.equal} of the baseline's {held.base} case(s) are asked in the same way, {held.both} are answered "
            "in both runs: approve a new baseline"
        )
        yield Check(metric, _MOSTLY_SAME, "critical", "INCONCLUSIVE", reason, held.equal, evidence=held.both)
    for demand, cases, broken, what in (
        (_STILL_PASSES, held.fails, "NO-GO", "passed before and fail now"),
        (_STILL_ANSWERED, held.unanswered, "INCONCLUSIVE", "passed before and have no answer now"),
    ):
        decided: Decided = "GO" if not cases else "NO-GO" if broken == "NO-GO" else "INCONCLUSIVE"
        names = f": {', '.join(cases[:_TOLD])}{' ...' if len(cases) > _TOLD else ''}" if cases else ""
        reason = f"{len(cases)} case(s) {what}{names}; {held.both} in both runs"
        yield Check(metric, demand, "critical", decided, reason, len(cases), cases=tuple(cases), evidence=held.both)


def _beside(check: Check, runs: Collection[str], held_to: Collection[str], written: bool) -> Check:
    """A statistical check: of what one of ``runs`` is held to by its recorded answers it is shown, and decides nothing.

    ``held_to`` are these runs, and what of each passes or fails, as a policy names them.
    """
    about = any(check.metric == run or check.metric.startswith(f"{run}.") for run in runs)
    aside = check.change and check.metric in held_to if written else about
    return msgspec.structs.replace(check, tier="advisory") if aside and check.tier == "critical" else check
