"""A finished run as one side of a comparison: its cases, what their answers add up to, and what they took."""

from __future__ import annotations

import hashlib
import heapq
import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evalq.evalcore.contract.measures import Judged, Measure, Number, Observation
from evalq.evalcore.model.calls import Lineage
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Omission
from evalq.evalcore.statistics.quantiles import Quantiles

_FLUSHED = 1 << 14
_SEEN = 0
"""The place of how many answers came; behind it count, sum, squares, and the same two of logarithms."""
_LEAST = 1e-9
"""What is smaller counts as this where logarithms are taken: 0 has none."""


class Took(msgspec.Struct):
    """One number over a run's answers: ``sketch`` of all, and sums by case, in the order of ``ids``.

    ``count`` answers of a case have it, and ``missing`` more have not. ``total`` and ``squares`` are sums of the number
    and of its square, ``logs`` and ``log_squares`` those of its logarithm.
    """

    sketch: Quantiles = msgspec.field(default_factory=Quantiles)
    ids: list[str] = []
    count: list[int] = []
    missing: list[int] = []
    total: list[float] = []
    squares: list[float] = []
    logs: list[float] = []
    log_squares: list[float] = []

    @property
    def lacking(self) -> int:
        """How many answers do not have the number."""
        return sum(self.missing)


class Taking:
    """Adds up numbers of answers; memory grows with the cases, not with the answers."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._cases: dict[str, list[list[float]]] = {}
        self._values = [array("d") for _ in names]
        self._sketches = [Quantiles() for _ in names]

    def add(self, case: str, values: Sequence[float | None]) -> None:
        """Count an answer to ``case``: a value for each name, or None where it lacks it."""
        sums = self._cases.get(case)
        if sums is None:
            sums = self._cases[case] = [[0, 0, 0.0, 0.0, 0.0, 0.0] for _ in self._names]
        for at, (own, value) in enumerate(zip(sums, values, strict=True)):
            own[_SEEN] += 1
            if value is None or not 0.0 <= value < math.inf:
                continue
            log = math.log(max(value, _LEAST))
            for place, more in enumerate((1, value, value * value, log, log * log), start=1):
                own[place] += more
            self._values[at].append(value)
            if len(self._values[at]) >= _FLUSHED:
                self._flush(at)

    def found(self, missing: Mapping[str, int]) -> dict[str, Took]:
        """What was added, by name, where ``missing`` has how many answers a case lacks besides.

        Without a number that no answer has.
        """
        ids, made = sorted(self._cases.keys() | missing.keys()), {}
        nothing = [0, 0, 0.0, 0.0, 0.0, 0.0]
        for at, name in enumerate(self._names):
            self._flush(at)
            if not self._sketches[at].count:
                continue
            rows = [self._cases[case][at] if case in self._cases else nothing for case in ids]
            made[name] = Took(
                self._sketches[at],
                ids,
                [int(row[1]) for row in rows],
                [int(row[_SEEN] - row[1]) + missing.get(case, 0) for case, row in zip(ids, rows, strict=True)],
                *([row[place] for row in rows] for place in range(2, 6)),
            )
        return made

    def _flush(self, at: int) -> None:
        self._sketches[at].merge(Quantiles.of(self._values[at]))
        del self._values[at][:]


_SAMPLED_CASES, _SAMPLED_ANSWERS = 200, 8
_WHOLE = (1 << 48) - 1
_BLOCK = 1 << 12
"""Repeats whose bits are kept in one number: so many take a few hundred bytes, wherever in a run they are."""


class CaseColumn(msgspec.Struct):
    """One measure over all cases, each list in the order of `CaseSummary.ids`.

    ``count`` is how many answers have a value, ``total`` the sum of those, ``squares`` the sum of their squares. For
    pass/fail both sums are the number of passes.
    """

    count: list[int] = []
    total: list[float] = []
    squares: list[float] = []


class Bag(msgspec.Struct, frozen=True, array_like=True):
    """A case's answers in whichever order: a digest of the ``whole``, and the ``chance`` of the same ones again.

    That is a bound for answers of any agent's own: it is the likelier the more they are alike.
    """

    whole: int
    chance: float


class CaseSummary(msgspec.Struct):
    """All that `compare` needs of a run: cases sorted by id, with a column for each measure.

    ``missing`` counts the records of a case that have no answer (errors, dead ones, unanswered calls); ``unattributed``
    those, answered or not, whose case nobody can tell. ``measures`` says what the columns are. ``labels`` counts a
    case's answers by a digest of their label, where the evaluator gives one. ``collapsed`` and ``diverse`` are the
    cases that the run itself decided, each by itself, and ``collapse_p`` has how surprising each case's answers are if
    it is not collapsed; None where the evaluator does not say. ``stopped`` are those that got fewer answers than
    planned since they were decided. ``judged`` says what rests on verdicts that may be wrong. ``unrecorded`` are cases
    that should be there, and that no record is about.

    ``specified`` has the digest of each case that the run asks, of its input and its checks, where the evaluator has a
    list of them. ``unusable`` says how many of a case's missing answers came, and nobody could use them. ``answers``
    has digests of the answers of some cases, by the number of the repeat: the same cases in every run that has them.
    ``bags`` has all answers of these cases, without their order.
    """

    measures: list[Measure]
    ids: list[str] = []
    missing: list[int] = []
    columns: dict[str, CaseColumn] = {}
    unattributed: int = 0
    labels: list[dict[str, int]] = []
    collapsed: list[str] = []
    stopped: list[str] = []
    judged: Judged | None = None
    collapse_p: dict[str, float] | None = None
    unrecorded: list[str] | None = None
    diverse: list[str] = []
    specified: dict[str, str] = {}
    unusable: dict[str, int] = {}
    answers: dict[str, dict[int, int]] = {}
    bags: dict[str, Bag] = {}


def of_cases(cases: CaseSummary, ids: Sequence[str], lacking: int = 0) -> CaseSummary:
    """``cases`` with these ``ids`` and no others, in their order: each that it does not have lacks so many answers."""
    place = {case: at for at, case in enumerate(cases.ids)}
    found = [place.get(case) for case in ids]
    return msgspec.structs.replace(
        cases,
        ids=list(ids),
        missing=[lacking if at is None else cases.missing[at] for at in found],
        columns={
            name: CaseColumn(
                [0 if at is None else each.count[at] for at in found],
                [0.0 if at is None else each.total[at] for at in found],
                [0.0 if at is None else each.squares[at] for at in found],
            )
            for name, each in cases.columns.items()
        },
        labels=[{} if at is None else cases.labels[at] for at in found] if cases.labels else [],
        collapsed=sorted(set(cases.collapsed).intersection(ids)),
        specified={case: cases.specified[case] for case in ids if case in cases.specified},
        stopped=sorted(set(cases.stopped).intersection(ids)),
        diverse=sorted(set(cases.diverse).intersection(ids)),
        collapse_p=None
        if cases.collapse_p is None
        else {k: p for k, p in cases.collapse_p.items() if k in place.keys() & set(ids)},
    )


def pooled(first: CaseSummary, second: CaseSummary) -> CaseSummary:
    """The answers of two runs that were asked alike, as those of one; labels, which are one run's, are left out."""
    sides = (first, second)
    ids = sorted({case for side in sides for case in side.ids})
    place = {case: at for at, case in enumerate(ids)}
    missing, columns = [0] * len(ids), {}
    measures = [measure for measure in first.measures if measure.name in second.columns]
    for side in sides:
        for case, lacking in zip(side.ids, side.missing, strict=True):
            missing[place[case]] += lacking
    for measure in measures:
        column = columns[measure.name] = CaseColumn([0] * len(ids), [0.0] * len(ids), [0.0] * len(ids))
        for side in sides:
            given = side.columns[measure.name]
            for case, n, total, squares in zip(side.ids, given.count, given.total, given.squares, strict=True):
                at = place[case]
                column.count[at] += n
                column.total[at] += total
                column.squares[at] += squares
    unattributed = first.unattributed + second.unattributed
    # Asked alike is judged alike, so either side's word will do.
    return CaseSummary(measures, ids, missing, columns, unattributed, judged=first.judged)


class _Case:
    """What was added of one case."""

    __slots__ = ("labels", "missing", "repeats", "sums")

    def __init__(self, measures: int) -> None:
        self.missing = 0
        self.sums: list[float] = [0] * (3 * measures)
        self.labels: Counter[str] | None = None
        self.repeats: dict[tuple[str, int], tuple[int, int]] = {}

    def repeated(self, repeat: int | None, source: str, *, answered: bool) -> bool:
        """Whether this repeat came before in the input called ``source``."""
        if repeat is None:
            return False
        # Sets of bits, of repeats that were answered and that were not: there may be millions of them in a run. By
        # blocks, as the bits take as much memory as the largest number, and anybody may write a large one.
        block, bit = (source, repeat // _BLOCK), 1 << repeat % _BLOCK
        seen, lacking = self.repeats.get(block, (0, 0))
        if (seen if answered else seen | lacking) & bit:
            return True
        if answered:
            # What failed and was asked again lacks no answer: the report counts it, too.
            self.missing -= bool(lacking & bit)
            self.repeats[block] = seen | bit, lacking & ~bit
        else:
            self.repeats[block] = seen, lacking | bit
        return False

    def add(self, values: Sequence[float | None]) -> None:
        """Count a record's values."""
        sums = self.sums
        for start, value in enumerate(values):
            if value is not None:
                sums[3 * start] += 1
                sums[3 * start + 1] += value
                sums[3 * start + 2] += value * value


class Summing:
    """Adds up observations, in the order of the records, to a `CaseSummary`; memory grows with the number of cases."""

    def __init__(self, measures: tuple[Measure, ...], took: Sequence[str] = ()) -> None:
        """``took`` names the numbers that observations have beside the measures."""
        self._measures = measures
        self._taking = Taking(took)
        self._cases: dict[str, _Case] = {}
        self._unattributed = 0
        self._sample = _Sample()

    def add(self, observation: Observation, source: str = "", line: Callable[[], bytes] | None = None) -> None:
        """Count one record of the input called ``source``; ``line`` gives what it says, without its place.

        It is called for cases of the sample alone: it takes longer than all else here.
        """
        if not observation.case:
            self._unattributed += 1
            return
        case = self._cases.get(observation.case)
        if case is None:
            case = self._cases[observation.case] = _Case(len(self._measures))
        if case.repeated(observation.repeat, source, answered=bool(observation.values)):
            return
        case.missing += not observation.values
        case.add(observation.values)
        if line and observation.values:
            self._sample.add(observation.case, observation.repeat, line)
        if observation.took:
            self._taking.add(observation.case, observation.took)
        if observation.label is not None:
            case.labels = Counter() if case.labels is None else case.labels
            case.labels[_short(observation.label)] += 1

    def took(self) -> dict[str, Took]:
        """What answers took, by the names given."""
        return self._taking.found({case: counted.missing for case, counted in self._cases.items()})

    def summary(
        self,
        collapsed: Sequence[str] = (),
        stopped: Sequence[str] = (),
        judged: Judged | None = None,
        collapse_p: dict[str, float] | None = None,
        diverse: Sequence[str] = (),
    ) -> CaseSummary:
        """What was added, sorted by case."""
        ids = sorted(self._cases)
        cases = [self._cases[case] for case in ids]
        columns = {
            measure.name: CaseColumn(
                [int(case.sums[3 * at]) for case in cases],
                [case.sums[3 * at + 1] for case in cases],
                [case.sums[3 * at + 2] for case in cases],
            )
            for at, measure in enumerate(self._measures)
        }
        # Of all columns or none, so that a run without any answer has the measures that its evaluator declares.
        empty = {each.name for each in self._measures if each.optional and not any(columns[each.name].count)}
        missing = [case.missing for case in cases]
        labels = [dict(sorted((case.labels or {}).items())) for case in cases]
        return CaseSummary(
            [measure for measure in self._measures if measure.name not in empty],
            ids,
            missing,
            {name: column for name, column in columns.items() if name not in empty},
            self._unattributed,
            labels if any(labels) else [],
            sorted(collapsed),
            sorted(stopped),
            judged,
            collapse_p,
            diverse=sorted(diverse),
            answers=self._sample.answers(),
            bags=self._sample.bags(),
        )


class _Kept:
    """The answers of a sampled case: the first ones by repeat, how often each of a few came, and the sum of all."""

    __slots__ = ("counts", "repeats", "rest", "whole")

    def __init__(self) -> None:
        self.repeats: dict[int, int] = {}
        self.counts: dict[int, int] = {}
        self.rest = 0
        self.whole = 0

    def add(self, repeat: int | None, number: int) -> None:
        if len(self.repeats) < _SAMPLED_ANSWERS:
            self.repeats.setdefault(len(self.repeats) if repeat is None else repeat, number)
        if number in self.counts or len(self.counts) < _SAMPLED_ANSWERS:
            self.counts[number] = self.counts.get(number, 0) + 1
        else:
            self.rest += 1
        # A sum is the same in whichever order.
        self.whole = (self.whole + number) & _WHOLE

    def bag(self) -> Bag:
        """The chance is that of these counts where each answer is as likely as it was often.

        No other odds make them likelier, and what is counted as one among the rest only makes it more.
        """
        counts = [count for count in (*self.counts.values(), self.rest) if count]
        answers = sum(counts)
        logs = (count * math.log(count / answers) - math.lgamma(count + 1) for count in counts)
        return Bag(self.whole, min(1.0, math.exp(math.lgamma(answers + 1) + math.fsum(logs))))


class _Sample:
    """Digests of the answers of a sample of cases, which is the same for all runs of the same cases."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        # The cases with the smallest digests: a heap of them turned, so that its root is the largest.
        self._heap: list[tuple[int, str]] = []

    def add(self, case: str, repeat: int | None, line: Callable[[], bytes]) -> None:
        kept = self._kept.get(case) or self._taken(case)
        if kept is not None:
            # Lines of a file end with a newline, and those of a ledger do not.
            kept.add(repeat, _number(line().rstrip(b"\n")))

    def _taken(self, case: str) -> _Kept | None:
        place = -_number(case.encode(errors="surrogatepass"))
        if len(self._heap) < _SAMPLED_CASES:
            heapq.heappush(self._heap, (place, case))
        elif place <= self._heap[0][0]:
            return None
        else:
            # What is dropped never comes back: the largest digest that is kept only falls.
            del self._kept[heapq.heapreplace(self._heap, (place, case))[1]]
        self._kept[case] = _Kept()
        return self._kept[case]

    def answers(self) -> dict[str, dict[int, int]]:
        return {case: self._kept[case].repeats for case in sorted(self._kept)}

    def bags(self) -> dict[str, Bag]:
        return {case: self._kept[case].bag() for case in sorted(self._kept)}


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest())


def _short(label: str) -> str:
    # Labels are told apart within one case only, for which six bytes will do.
    return hashlib.blake2b(label.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def asked_alike(base: CaseSummary, cand: CaseSummary) -> bool:
    """Whether answers stopped neither side, or both of them in the same way: by --stop, of as many calls at most.

    A case that stops has been asked the longer the more its answers differ, so that its mean leans to what it mostly
    answers. Two runs that stop alike lean alike; beside one that was asked to the end, or more often, such a mean has
    changed though nothing did.
    """
    if not (base.stopped or cand.stopped):
        return True
    return bool(base.stopped and cand.stopped) and _most(base) == _most(cand)


def _most(run: CaseSummary) -> int:
    """Calls of the case that took most: all that were planned, where any case was asked to the end."""
    columns = [column.count for column in run.columns.values()]
    return max(
        (max(counts, default=0) + lacking for *counts, lacking in zip(*columns, run.missing, strict=True)), default=0
    )


def with_unrecorded(cases: CaseSummary) -> CaseSummary:
    """``cases`` with those that no record is about, as if asked as often as the one that was asked most, in vain.

    What is compared with a baseline needs none of this: cases that the baseline has are missing anyway.
    """
    added = sorted(set(cases.unrecorded or ()).difference(cases.ids))
    if not added:
        return cases
    every = of_cases(cases, sorted([*cases.ids, *added]), lacking=max(1, _most(cases)))
    return msgspec.structs.replace(every, unrecorded=[])


CASES_SCHEMA = "evalq.cases/2"


class RunUsage(msgspec.Struct, frozen=True):
    """What the live calls of a run took, over all of its outputs.

    ``attempts`` counts failed ones, too; ``cost`` is that of all of them, 0 where the target has no price.

    ``seconds`` are quantiles of the time of each output's last attempt: {"p50": 1.2, "p95": 4.0, "p99": 6.1}.
    ``config`` is the digest of the settings of the target that gave them, empty where they are of several. ``sample``
    has numbers of some answers: two runs of which one took answers from a cache have some of them in common. ``each``
    has means over the outputs that have a number: {"seconds": 1.9, "cost": 0.01, "prompt_tokens": 312.5}. ``untold``
    counts those that were answered and do not say it, where there are any: {"cost": 3}.
    """

    outputs: int = 0
    errors: int = 0
    attempts: int = 0
    cost: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: dict[str, float] = {}
    config: str = ""
    sample: list[int] = []
    each: dict[str, float] = {}
    untold: dict[str, int] = {}

    @property
    def cost_each(self) -> float | None:
        """The mean cost of an output, its failed attempts included, in the target's currency; None where no attempt
        has a cost, as of a target without a price.
        """
        known = self.cost > 0 or "cost" in self.each
        return self.cost / self.outputs if known and self.outputs else None


class RunCases(msgspec.Struct, kw_only=True):
    """A finished run, as far as a comparison needs it.

    ``name`` is what its suite calls it, by which runs of one evaluator are told apart. ``specification`` is the digest
    of its parameters, a golden set among them; ``report`` that of its report.json, and so of all that it found.
    ``usage`` is what its live calls took, where it made any; ``lineage`` where it took outputs of earlier runs.
    ``left_out`` is what its numbers leave out, as its report has it. ``parameters`` is the digest of its parameters
    without its cases, ``inputs`` are the SHA-256 of the files that it evaluated, and ``lines`` digests of all lines in
    each of these, in whichever order; empty where they could not be read once more. ``doubled`` counts those of a
    sample of their answers that are in several files, by when each of their calls was made.
    ``took`` has what single answers took, by the name of the number: "usage.seconds" and the like are of live calls.
    ``numbers`` says what the numbers of the results are.
    ``day`` is the one on which it began (ISO, UTC), empty where nobody knows.
    """

    schema: str = CASES_SCHEMA
    run: str
    evaluator: str
    version: str
    name: str = ""
    suite: str = "default"
    target: str = ""
    tags: dict[str, str] = {}
    specification: str
    report: str
    records: dict[str, int]
    results: dict[str, Json] = {}
    cases: CaseSummary
    usage: RunUsage | None = None
    lineage: Lineage | None = None
    took: dict[str, Took] = {}
    numbers: list[Number] = []
    left_out: list[Omission] = []
    parameters: str = ""
    inputs: list[str] = []
    lines: list[str] = []
    doubled: int = 0
    day: str = ""

    @property
    def looks(self) -> int:
        """Which look at a growing run this is: 1 for one that has answers of its own alone."""
        return 1 + (self.lineage.number if self.lineage else 0)

    @property
    def called(self) -> str:
        """What a policy calls it: its name in the suite, or its evaluator's."""
        return self.name or self.evaluator


def has_common_answers(run: RunCases, other: RunCases) -> bool:
    """Whether they are one run, or have answers in common: by their lineage, or by samples of answers from a cache."""
    return run.run == other.run or bool(common_answers(run, other))


def common_answers(run: RunCases, other: RunCases) -> str:
    """Which answers two runs have in common, in words; empty if evalq knows of none, and for a run and itself."""
    if run.run == other.run:
        return ""
    if common := sorted(_lineage(run) & _lineage(other)):
        return f"{run.run} and {other.run} have answers of {', '.join(common[:3])} in common"
    ours, theirs = (set(each.usage.sample) if each.usage is not None else set() for each in (run, other))
    return f"{run.run} and {other.run} have answers in common, from a cache" if ours & theirs else ""


def _lineage(run: RunCases) -> set[str]:
    # Itself, too: a run from which others took answers has these in common with them, and names none of them.
    return {run.run, *(run.lineage.akin if run.lineage is not None else ())}
