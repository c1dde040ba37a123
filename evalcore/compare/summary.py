"""A finished run as one side of a comparison: its cases, the sums over their answers, and their usage."""

from __future__ import annotations

import hashlib
import heapq
import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from evalq.evalcore.contract.measures import Judged, Measure, Number, Observation
from evalq.evalcore.model.calls import Lineage, replaced_model, replaced_user
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Omission
from evalq.evalcore.statistics.quantiles import Quantiles

_FLUSHED = 1 << 14
_NO_SUMS = [0, 0, 0.0, 0.0, 0.0, 0.0]
"""How many answers, how many with the number, its sum, its squares, and the sum and squares of its logarithm."""
_LEAST = 1e-9
"""The least value of which to take a logarithm, since 0 has none."""


class Took(msgspec.Struct):
    """One number over a run's answers: ``sketch`` of all, and sums by case, in the order of ``ids``.

    ``count`` answers of a case have the number, and ``missing`` more lack it. ``total`` and ``squares`` are sums of the
    number and of its square, ``logs`` and ``log_squares`` those of its logarithm.
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
        """How many answers lack the number."""
        return sum(self.missing)


class Taking:
    """Adds up numbers of answers; memory grows with the cases, not with the answers."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        # The sums of all numbers of a case, one after another.
        self._cases: dict[str, list[float]] = {}
        self._values = [array("d") for _ in names]
        self._sketches = [Quantiles() for _ in names]
        self._waiting = 0

    def add(self, case: str, values: Sequence[float | None]) -> None:
        """Count an answer to ``case``: a value for each name, or None for a missing one."""
        sums = self._cases.get(case)
        if sums is None:
            sums = self._cases[case] = _NO_SUMS * len(self._names)
        start = 0
        for value, kept in zip(values, self._values, strict=True):
            sums[start] += 1
            if value is not None and 0.0 <= value < math.inf:
                log = math.log(max(value, _LEAST))
                # Five additions in a loop would take most of the time of a large run's cases.
                sums[start + 1] += 1
                sums[start + 2] += value
                sums[start + 3] += value * value
                sums[start + 4] += log
                sums[start + 5] += log * log
                kept.append(value)
            start += len(_NO_SUMS)
        self._waiting += 1
        if self._waiting >= _FLUSHED:
            self._flush()

    def by_name(self, missing: Mapping[str, int]) -> dict[str, Took]:
        """The sums by name, without numbers that no answer has. ``missing`` says how many more answers a case lacks."""
        self._flush()
        ids, made = sorted(self._cases.keys() | missing.keys()), {}
        nothing = _NO_SUMS * len(self._names)
        rows = [self._cases.get(case, nothing) for case in ids]
        for at, (name, sketch) in enumerate(zip(self._names, self._sketches, strict=True)):
            if not sketch.count:
                continue
            seen, counts, *sums = ([row[len(_NO_SUMS) * at + index] for row in rows] for index in range(len(_NO_SUMS)))
            lacking = [int(all_of - known) for all_of, known in zip(seen, counts, strict=True)]
            made[name] = Took(
                sketch,
                ids,
                list(map(int, counts)),
                [more + missing.get(case, 0) for case, more in zip(ids, lacking, strict=True)],
                *sums,
            )
        return made

    def _flush(self) -> None:
        for sketch, values in zip(self._sketches, self._values, strict=True):
            sketch.merge(Quantiles.of(values))
            del values[:]
        self._waiting = 0


_SAMPLED_CASES, _SAMPLED_ANSWERS = 200, 8
_WHOLE = (1 << 48) - 1
_BLOCK = 1 << 12
"""How many repeats have their bits in one number, which so takes a few hundred bytes at most."""
Repeats = tuple[tuple[tuple[str, int], int], ...]
"""The repeats that a case has records of, answered or not: ((input, block), bits) of each block."""


class CaseColumn(msgspec.Struct):
    """One measure over all cases, each list in the order of `CaseSummary.ids`.

    ``count`` is how many answers have a value, ``total`` the sum of the values, ``squares`` the sum of their squares.
    For pass/fail both sums are the number of passes.
    """

    count: list[int] = []
    total: list[float] = []
    squares: list[float] = []


class Bag(msgspec.Struct, frozen=True, array_like=True):
    """A case's answers in any order: a digest of the ``whole``, and the ``chance`` that fresh answers are the same.

    The chance is an upper bound for any agent; it is larger if more of the answers are equal.
    """

    whole: int
    chance: float


class CaseSummary(msgspec.Struct):
    """The part of a run that `compare` needs: cases sorted by id, with a column for each measure.

    ``missing`` counts a case's records without an answer (errors, dead ones, unanswered calls), and the repeats that a
    recorded file left out. ``unattributed`` counts the records without a case, answered or not. ``measures`` describes
    the columns. ``labels`` counts a case's answers by a digest of their label, if the evaluator gives labels.
    ``collapsed`` and ``diverse`` are the cases that the run decided, each by itself. ``collapse_p`` has each case's
    p-value if it is not collapsed; None if the evaluator does not give it. ``stopped`` cases got fewer answers than
    planned because they were decided. ``judged`` says which numbers rest on judges. ``unrecorded`` cases should be
    there, but have no record.

    ``asked`` is how many repeats of each case have a record, or were left out between others; empty if records have no
    repeats. ``specified`` has the digest of the input and checks of each case that the run asks, if the evaluator
    lists cases. ``unusable`` says how many of a case's missing answers arrived, but were unusable. ``answers`` has
    digests of the answers of some cases, by repeat; every run samples the same cases. ``bags`` has all answers of these
    cases, without their order.
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
    asked: list[int] = []


def of_cases(cases: CaseSummary, ids: Sequence[str], lacking: int = 0) -> CaseSummary:
    """``cases`` with only these ``ids``, in their order; an id that is not there has ``lacking`` missing answers."""
    index = {case: at for at, case in enumerate(cases.ids)}
    indices = [index.get(case) for case in ids]
    return msgspec.structs.replace(
        cases,
        ids=list(ids),
        missing=[lacking if at is None else cases.missing[at] for at in indices],
        columns={
            name: CaseColumn(
                [0 if at is None else each.count[at] for at in indices],
                [0.0 if at is None else each.total[at] for at in indices],
                [0.0 if at is None else each.squares[at] for at in indices],
            )
            for name, each in cases.columns.items()
        },
        labels=[{} if at is None else cases.labels[at] for at in indices] if cases.labels else [],
        asked=[lacking if at is None else cases.asked[at] for at in indices] if cases.asked else [],
        collapsed=sorted(set(cases.collapsed).intersection(ids)),
        specified={case: cases.specified[case] for case in ids if case in cases.specified},
        stopped=sorted(set(cases.stopped).intersection(ids)),
        diverse=sorted(set(cases.diverse).intersection(ids)),
        collapse_p=None
        if cases.collapse_p is None
        else {k: p for k, p in cases.collapse_p.items() if k in index.keys() & set(ids)},
    )


def pooled(first: CaseSummary, second: CaseSummary) -> CaseSummary:
    """The answers of two runs that were asked alike, as one run, without labels."""
    sides = (first, second)
    ids = sorted({case for side in sides for case in side.ids})
    index = {case: at for at, case in enumerate(ids)}
    missing, columns = [0] * len(ids), {}
    measures = [measure for measure in first.measures if measure.name in second.columns]
    for side in sides:
        for case, lacking in zip(side.ids, side.missing, strict=True):
            missing[index[case]] += lacking
    for measure in measures:
        column = columns[measure.name] = CaseColumn([0] * len(ids), [0.0] * len(ids), [0.0] * len(ids))
        for side in sides:
            added = side.columns[measure.name]
            for case, n, total, squares in zip(side.ids, added.count, added.total, added.squares, strict=True):
                at = index[case]
                column.count[at] += n
                column.total[at] += total
                column.squares[at] += squares
    unattributed = first.unattributed + second.unattributed
    # Runs that were asked alike have the same judges, so take either side's.
    return CaseSummary(measures, ids, missing, columns, unattributed, judged=first.judged)


class _Case:
    """The sums of one case."""

    __slots__ = ("labels", "missing", "repeats", "sums")

    def __init__(self, measures: int) -> None:
        self.missing = 0
        self.sums: list[float] = [0] * (3 * measures)
        self.labels: Counter[str] | None = None
        self.repeats: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def asked(self) -> int:
        """How many repeats have a record, answered or not."""
        return sum((seen | lacking).bit_count() for seen, lacking in self.repeats.values())

    def repeated(self, repeat: int | None, source: str, *, answered: bool) -> bool:
        """Whether this repeat came before in the input called ``source``."""
        if repeat is None:
            return False
        # Two sets of bits, of answered and of missing repeats, since a run may have millions of repeats. The sets are
        # cut into blocks: bits take as much memory as the largest number, and a file may name a very large one.
        block, bit = (source, repeat // _BLOCK), 1 << repeat % _BLOCK
        seen, lacking = self.repeats.get(block, (0, 0))
        if (seen if answered else seen | lacking) & bit:
            return True
        if answered:
            # A call that failed and then succeeded is not missing: the report counts its answer, too.
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
        """Count one record of the input called ``source``; ``line`` gives its answer.

        `add` calls ``line`` only for cases of the sample, because it takes longer than everything else here.
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

    def took(self, summary: CaseSummary) -> dict[str, Took]:
        """The usage of the answers in ``summary``, by name."""
        return self._taking.by_name(dict(zip(summary.ids, summary.missing, strict=True)))

    def repeats(self) -> dict[Repeats, list[str]]:
        """{repeats: the cases that have records of just these}."""
        found: dict[Repeats, list[str]] = {}
        for name, case in self._cases.items():
            have = tuple((block, seen | lacking) for block, (seen, lacking) in case.repeats.items())
            found.setdefault(have, []).append(name)
        return found

    def summary(
        self,
        collapsed: Sequence[str] = (),
        stopped: Sequence[str] = (),
        judged: Judged | None = None,
        collapse_p: dict[str, float] | None = None,
        diverse: Sequence[str] = (),
    ) -> CaseSummary:
        """The sums, sorted by case."""
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
        # Leave out only optional measures, so that a run without any answer has the other measures of its evaluator.
        empty = {each.name for each in self._measures if each.optional and not any(columns[each.name].count)}
        missing = [case.missing for case in cases]
        asked = [case.asked for case in cases]
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
            asked=asked if any(asked) else [],
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
        """All answers, with the chance of these counts if each answer's probability is its observed share.

        No other probabilities make the counts likelier. Counting the rest as one answer only raises the chance.
        """
        counts = [count for count in (*self.counts.values(), self.rest) if count]
        answers = sum(counts)
        logs = (count * math.log(count / answers) - math.lgamma(count + 1) for count in counts)
        return Bag(self.whole, min(1.0, math.exp(math.lgamma(answers + 1) + math.fsum(logs))))


class _Sample:
    """Digests of the answers of a sample of cases, which is the same for all runs of the same cases."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        # The cases with the smallest digests, negated so that the largest of them is the heap's root.
        self._heap: list[tuple[int, str]] = []

    def add(self, case: str, repeat: int | None, line: Callable[[], bytes]) -> None:
        kept = self._kept.get(case) or self._admit(case)
        if kept is not None:
            # Only lines of a file end with a newline; those of a ledger do not.
            kept.add(repeat, _number(line().rstrip(b"\n")))

    def _admit(self, case: str) -> _Kept | None:
        rank = -_number(case.encode(errors="surrogatepass"))
        if len(self._heap) < _SAMPLED_CASES:
            heapq.heappush(self._heap, (rank, case))
        elif rank <= self._heap[0][0]:
            return None
        else:
            # A dropped case never comes back, since the largest kept digest only falls.
            del self._kept[heapq.heapreplace(self._heap, (rank, case))[1]]
        self._kept[case] = _Kept()
        return self._kept[case]

    def answers(self) -> dict[str, dict[int, int]]:
        return {case: self._kept[case].repeats for case in sorted(self._kept)}

    def bags(self) -> dict[str, Bag]:
        return {case: self._kept[case].bag() for case in sorted(self._kept)}


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest())


def _short(label: str) -> str:
    # Six bytes are enough, since evalq compares labels only within one case.
    return hashlib.blake2b(label.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def asked_alike(base: CaseSummary, cand: CaseSummary) -> bool:
    """Whether no case of either run stopped, or cases of both stopped in the same way: with the same most calls.

    A case that stops gets fewer answers the more they agree, so that its mean leans to its commonest answer. Two runs
    that stop alike lean alike. Compared with a run that never stops, such a mean seems changed although nothing is.
    """
    if not (base.stopped or cand.stopped):
        return True
    return bool(base.stopped and cand.stopped) and _most(base) == _most(cand)


def _most(run: CaseSummary) -> int:
    """The most calls of any case: as many as planned if any case was called to the end."""
    columns = [column.count for column in run.columns.values()]
    return max(
        (max(counts, default=0) + lacking for *counts, lacking in zip(*columns, run.missing, strict=True)), default=0
    )


def with_unrecorded(cases: CaseSummary) -> CaseSummary:
    """``cases`` with the unrecorded ones, each with as many missing answers as the most-called case has calls.

    A comparison with a baseline does not need this: there the baseline's cases count as missing anyway.
    """
    added = sorted(set(cases.unrecorded or ()).difference(cases.ids))
    if not added:
        return cases
    every = of_cases(cases, sorted([*cases.ids, *added]), lacking=max(1, _most(cases)))
    return msgspec.structs.replace(every, unrecorded=[])


CASES_SCHEMA = "evalq.cases/2"


class RunUsage(msgspec.Struct, frozen=True):
    """Time, cost and tokens of a run's live calls, over all of its outputs.

    ``attempts`` and ``cost`` include failed attempts; the cost is 0 if the target has no price.

    ``seconds`` are quantiles of the time of each output's last attempt: {"p50": 1.2, "p95": 4.0, "p99": 6.1}.
    ``config`` is the digest of the target's settings, empty if there are several. ``sample`` has numbers of some
    answers: if a run took answers from another run's cache, their samples overlap. ``each`` has means over the outputs
    that have a number: {"seconds": 1.9, "cost": 0.01, "prompt_tokens": 312.5}. ``untold`` counts answered outputs
    without a number: {"cost": 3}. ``served`` counts the answers by the model that gave them (`Served.label`), and
    ``users`` by the target that simulated their user (`UserFacts.label`), whose calls are in no other number.
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
    served: dict[str, int] = {}
    users: dict[str, int] = {}

    @property
    def cost_each(self) -> float | None:
        """The mean cost of an output, with failed attempts, in the target's currency; None if no attempt has a cost."""
        known = self.cost > 0 or "cost" in self.each
        return self.cost / self.outputs if known and self.outputs else None


class RunCases(msgspec.Struct, kw_only=True):
    """The part of a finished run that a comparison needs.

    ``name`` is its name in the suite, since a suite may run one evaluator several times. ``specification`` is the
    digest of its parameters, with the golden set; ``report`` is the digest of its report.json, and so of its results.
    ``usage`` is that of its live calls, if it made any; ``lineage`` names the earlier runs whose outputs it took.
    ``left_out`` lists what its numbers leave out, as in its report. ``parameters`` is the digest of its parameters
    without its cases. ``inputs`` are the SHA-256 of the evaluated files, and ``lines`` the digests of all lines in each
    of these, in any order; empty if evalq could not read them again. ``doubled`` counts the answers in a sample that
    are in several files, by the times of their calls. ``took`` has the usage of single answers by the name of the
    number: "usage.seconds" and the like are of live calls. ``numbers`` describes the numbers of the results. ``day`` is
    the first day of the run (ISO, UTC), empty if unknown. ``named`` is what its user calls it: its folder, or the name
    of its baseline; files keep it empty.
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
    named: str = ""

    def other_model(self, base: RunCases) -> str:
        """How the models that served this run and ``base`` differ, and their simulated users, in a sentence each; empty
        if they do not, or unknown.
        """
        before, now = base.usage or RunUsage(), self.usage or RunUsage()
        model, user = replaced_model(before.served, now.served), replaced_user(before.users, now.users)
        return " ".join(filter(None, (model, user)))

    @property
    def shown(self) -> str:
        """Its name for people: that of its folder or baseline; without either, the run's id."""
        return self.named or self.run

    @property
    def looks(self) -> int:
        """Which interim look at a growing run this is: 1 for a run that extends no other."""
        return 1 + (self.lineage.number if self.lineage else 0)

    @property
    def called(self) -> str:
        """The run's name in a policy: its name in the suite, or its evaluator's."""
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
