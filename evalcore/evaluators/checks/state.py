"""The sums of a chunk of recorded outputs: counts by case, check and judge, and quantiles of cost and time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.checks.answer import NOTHING_USED, Unreadable, Vote
from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts
from evalq.evalcore.evaluators.checks.score import NO_LABELS, ScoredOutput
from evalq.evalcore.evaluators.checks.user.scored import ScoredUser, UserTally, conduct_cells, count_users, merge_users
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.model.state import LISTED, Faults, Merging, has_seen, mark_seen, merge_seen, overlap
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.quantiles import Quantiles

# Judges: their votes, readable replies, cost and time.

_MOST = 100
"""Judges, and digests of each, in the report: the first ones by name."""
Judges = dict[str, "JudgeTally"]


class JudgeTally(Merging, array_like=True):
    """One judge: votes ``asked``, of which ``failed`` have no reply, and ``unreadable`` a reply without a verdict.

    ``configs`` are digests of its settings, ``templates`` those of the words around the texts.
    """

    asked: int = 0
    failed: int = 0
    unreadable: int = 0
    configs: list[str] = msgspec.field(default_factory=list)
    templates: list[str] = msgspec.field(default_factory=list)
    latency: Quantiles = msgspec.field(default_factory=Quantiles)
    cost: Quantiles = msgspec.field(default_factory=Quantiles)
    tokens: Quantiles = msgspec.field(default_factory=Quantiles)

    def merge(self, later: JudgeTally) -> None:
        """Add the votes of later lines."""
        self.asked += later.asked
        self.failed += later.failed
        self.unreadable += later.unreadable
        self.configs = _first({*self.configs, *later.configs})
        self.templates = _first({*self.templates, *later.templates})
        for mine, theirs in ((self.latency, later.latency), (self.cost, later.cost), (self.tokens, later.tokens)):
            mine.merge(theirs)

    def settled(self) -> JudgeTally:
        """The tally with its quantiles in the order of the wire form."""
        for quantiles in (self.latency, self.cost, self.tokens):
            quantiles.buckets = dict(sorted(quantiles.buckets.items()))
        return self


def _first(names: Iterable[str]) -> list[str]:
    return sorted(names)[:_MOST]


def _merge_judges(mine: Judges, later: Judges) -> Judges:
    """The judges of both, in the order of names."""
    for name, tally in later.items():
        if name in mine:
            mine[name].merge(tally)
        else:
            mine[name] = tally
    # The first names of both are among the first of each, so that their tallies are complete in any order of merging.
    return {name: mine[name].settled() for name in _first(mine)}


def _count_votes(votes: Iterable[tuple[Vote, JudgeQuestion]]) -> Judges:
    """The tallies of votes, each with its question."""
    judges: dict[str, list[tuple[Vote, JudgeQuestion]]] = {}
    for vote, question in votes:
        judges.setdefault(shorten(vote.judge), []).append((vote, question))
    return {name: _tally(judges[name]).settled() for name in _first(judges)}


def _tally(votes: list[tuple[Vote, JudgeQuestion]]) -> JudgeTally:
    tally = JudgeTally(len(votes))
    latency, cost, tokens = [], [], []
    for vote, question in votes:
        if vote.failed:
            tally.failed += 1
        else:
            tally.unreadable += not _is_readable(vote, question)
        if not vote.attempts:
            continue
        # The latency of the last attempt, since those before it gave no reply; the cost of all.
        latency.append(vote.attempts[-1].latency_seconds)
        # Unknown costs are left out: counted as 0, they would make a judge look cheap.
        cost += [sum(known)] if (known := [each.cost for each in vote.attempts if each.cost is not None]) else []
        counts = [n for each in vote.attempts for n in (each.prompt_tokens, each.completion_tokens) if n is not None]
        tokens += [float(sum(counts))] if counts else []
    tally.configs = _first({shorten(vote.config) for vote, _ in votes} - {""})
    tally.templates = _first({shorten(vote.template) for vote, _ in votes} - {""})
    tally.latency, tally.cost, tally.tokens = (Quantiles.of(values) for values in (latency, cost, tokens))
    return tally


def _is_readable(vote: Vote, question: JudgeQuestion) -> bool:
    try:
        vote.read(question.read)
    except Unreadable:
        return False
    return True


BILLION = 1_000_000_000
"""Scores are summed in billionths: whole numbers have the same sum in any order."""
_EVIDENCE = 300


class CaseCounts(Merging, array_like=True):
    """One case: outputs by status, the sum of their scores in billionths, and the repeats seen.

    ``checks`` has [passed, failed, errors] for each check of the case. ``planned`` is the number of calls planned for
    the case if it could stop early, the largest in any line; else 0.

    ``plain`` has [passed, failed] by the checks that are not fallible, if the case also has others. ``labels`` has
    for each check how many labelled outputs [both, only the judge, only the person, nobody] passed, and ``people`` the
    same for outputs whose fallible verdicts are all labelled; both are empty without labels. ``lost`` of the outputs
    without a verdict are lost by the simulated user. ``conduct`` counts outputs by `conduct_cells`.
    """

    passed: int = 0
    failed: int = 0
    errors: int = 0
    score: int = 0
    checks: list[list[int]] = msgspec.field(default_factory=list)
    seen: dict[int, int] = msgspec.field(default_factory=dict)
    planned: int = 0
    plain: list[int] = msgspec.field(default_factory=list)
    labels: list[list[int]] = msgspec.field(default_factory=list)
    people: list[int] = msgspec.field(default_factory=list)
    lost: int = 0
    conduct: list[int] = msgspec.field(default_factory=list)

    @property
    def answers(self) -> int:
        """Outputs with a verdict."""
        return self.passed + self.failed

    @property
    def runs(self) -> int:
        """All outputs, also those without a verdict."""
        return self.passed + self.failed + self.errors

    def copy(self) -> CaseCounts:
        """Counts of its own, to add to."""
        return CaseCounts(
            *(self.passed, self.failed, self.errors, self.score),
            *([list(counts) for counts in self.checks], dict(self.seen), self.planned, list(self.plain)),
            *([list(counts) for counts in self.labels], list(self.people), self.lost, list(self.conduct)),
        )

    def merge(self, later: CaseCounts) -> None:
        """Add the outputs of later lines."""
        self.passed += later.passed
        self.failed += later.failed
        self.errors += later.errors
        self.score += later.score
        # The largest: lines from before a sweep was extended have a smaller number.
        self.planned = max(self.planned, later.planned)
        self.checks = _add_each(self.checks, later.checks)
        self.plain = _add_counts(self.plain, later.plain)
        self.labels = _add_each(self.labels, later.labels)
        self.people = _add_counts(self.people, later.people)
        self.lost += later.lost
        self.conduct = _add_counts(self.conduct, later.conduct)
        merge_seen(self.seen, later.seen)


def _add_counts(mine: list[int], later: list[int]) -> list[int]:
    return [a + b for a, b in zip(mine, later, strict=True)] if mine and later else mine or list(later)


def _add_each(mine: list[list[int]], later: list[list[int]]) -> list[list[int]]:
    if mine and later:
        return [_add_counts(a, b) for a, b in zip(mine, later, strict=True)]
    # Copied, since later parts are added in place.
    return mine or [list(counts) for counts in later]


_MOST_SHARED = 4096
_shared: dict[bytes, CaseCounts] = {}
_read_counts = msgspec.json.Decoder(CaseCounts).decode


def _shared_counts(data: bytes) -> CaseCounts:
    """Counts by their wire form, one object for all cases of the same: with many cases, most have one of a few.

    Nobody may change it. Raises msgspec.ValidationError.
    """
    counts = _shared.get(data)
    if counts is None:
        counts = _read_counts(data)
        if len(_shared) >= _MOST_SHARED:
            _shared.clear()
        _shared[data] = counts
    return counts


_USAGE = ("latency", "cost", "tokens", "first_token")
"""Quantiles of what outputs used, by their names in `Usage` and in the state."""


class ChecksState(State):
    """Cases by their index in the params. ``overlap``: some (case, repeat) occurs twice, and `settle` must run.

    Cases share objects of equal counts, so `merge` adds to copies.

    ``last`` is the last line counted, ``repeated`` the lines that `settle` left out, ``failures`` the first outputs
    that failed, with the reason, ``drawn`` the answers of cases that count them by kind. ``judges`` has the tally of
    each judge by name, ``users`` that of each simulated user. ``astray`` are the labels in lines that match nothing,
    ``dead`` the lines without a result.
    """

    cases: dict[int, CaseCounts] = msgspec.field(default_factory=dict)
    overlap: bool = False
    last: int = 0
    repeated: Faults = msgspec.field(default_factory=Faults)
    failures: Faults = msgspec.field(default_factory=Faults)
    latency: Quantiles = msgspec.field(default_factory=Quantiles)
    cost: Quantiles = msgspec.field(default_factory=Quantiles)
    tokens: Quantiles = msgspec.field(default_factory=Quantiles)
    drawn: dict[int, KindCounts] = msgspec.field(default_factory=dict)
    first_token: Quantiles = msgspec.field(default_factory=Quantiles)
    judges: dict[str, JudgeTally] = msgspec.field(default_factory=dict)
    astray: Faults = msgspec.field(default_factory=Faults)
    dead: list[int] = msgspec.field(default_factory=list)
    users: dict[str, UserTally] = msgspec.field(default_factory=dict)

    def merge(self, later: Self) -> None:
        """Add the state of later lines."""
        self.overlap = self.overlap or later.overlap
        self.last = max(self.last, later.last)
        self.repeated.merge(later.repeated)
        self.failures.merge(later.failures)
        self.astray.merge(later.astray)
        self.dead += later.dead
        for name in _USAGE:
            getattr(self, name).merge(getattr(later, name))
        if later.judges:
            self.judges = _merge_judges(self.judges, later.judges)
        if later.users:
            self.users = merge_users(self.users, later.users)
        for index, case in later.cases.items():
            known = self.cases.get(index)
            if known is None:
                self.cases[index] = case
                continue
            self.overlap = self.overlap or overlap(known.seen, case.seen)
            known = self.cases[index] = known.copy()
            known.merge(case)
        for index, answers in later.drawn.items():
            if index in self.drawn:
                self.drawn[index].merge(answers)
            else:
                self.drawn[index] = answers

    @classmethod
    def from_wire(cls, data: bytes) -> ChecksState:
        """Decode a state. Raises msgspec.ValidationError if ``data`` is not of this type."""
        wire = _read_wire(data)
        state = ChecksState({index: _shared_counts(bytes(case)) for index, case in wire.cases.items()})
        for name in _BESIDE_CASES:
            setattr(state, name, getattr(wire, name))
        return state

    def to_wire(self) -> bytes:
        """JSON of the fields with every mapping sorted: the same bytes for any order of merging."""
        self.cases = dict(sorted(self.cases.items()))
        for case in self.cases.values():
            if len(case.seen) > 1:
                case.seen = dict(sorted(case.seen.items()))
        for quantiles in (getattr(self, name) for name in _USAGE):
            quantiles.buckets = dict(sorted(quantiles.buckets.items()))
        self.drawn = dict(sorted(self.drawn.items()))
        for answers in self.drawn.values():
            # Sorted, since parts append their answers in the order of the cut (decision 25).
            answers.sort()
        return msgspec.json.encode(self)


class _WireState(ChecksState):
    """A state with its cases still encoded."""

    cases: dict[int, msgspec.Raw] = msgspec.field(default_factory=dict)  # type: ignore[assignment]


_read_wire = msgspec.json.Decoder(_WireState).decode
_BESIDE_CASES = tuple(field.name for field in msgspec.structs.fields(ChecksState) if field.name != "cases")


class ChecksGatherer:
    """Sums results to a state. The quantiles of usage are made once, at the end, which is faster."""

    def __init__(self) -> None:
        self.state = ChecksState()
        self._used: dict[str, list[float]] = {name: [] for name in _USAGE}
        self._failures: list[tuple[int, str]] = []
        self._failed = 0
        self._firsts: dict[tuple[Any, ...], CaseCounts] = {}
        self._shared: set[int] = set()
        self._unmatched: list[tuple[int, str]] = []
        self._votes: list[tuple[Vote, JudgeQuestion]] = []
        self._users: list[ScoredUser] = []

    def add(self, line: int, test: ScoredOutput) -> None:
        """Count the result of ``line``; of skipped outputs and unknown cases, only the line number."""
        self.state.last = line
        plan = test.plan
        if plan is None or test.status == "skipped":
            return
        case = self.state.cases.get(plan.index)
        if case is None and _has_verdicts_alone(test):
            self._count_first(plan.index, line, test)
            return
        if case is None:
            case = self.state.cases[plan.index] = CaseCounts()
        elif id(case) in self._shared:
            case = self.state.cases[plan.index] = case.copy()
        case.planned = max(case.planned, test.planned)
        # Also for an output without a verdict, since its judge was paid.
        self._votes += [(vote, plan.questions[vote.check]) for vote in test.votes]
        # Likewise: a check with a verdict counts even if another makes the output an error.
        self._count_checks(case, test)
        self._unmatched += [(line, shorten(why, _EVIDENCE)) for why in test.labels.unmatched]
        if test.user is not None:
            self._count_user(case, test.user, test)
        if test.score is None or test.repeat is None:
            case.errors += 1
            return
        # Only noted: `settle` leaves out all but the first output once all chunks are merged.
        if mark_seen(case.seen, test.repeat):
            self.state.overlap = True
        if test.status == "passed":
            case.passed += 1
        else:
            case.failed += 1
            self._note_failure(plan.case.id, line, test)
        case.score += round(test.score * BILLION)
        _count_labels(case, test)
        if test.mark.text:
            self._kinds_of(plan.index).add(test.repeat, test.mark)
        if test.usage is not NOTHING_USED:
            for name, values in self._used.items():
                if (value := getattr(test.usage, name)) is not None:
                    values.append(value)

    def _count_user(self, case: CaseCounts, user: ScoredUser, test: ScoredOutput) -> None:
        self._users.append(user)
        case.lost += bool(user.fault)
        if user.passes is not None and user.held is not None:
            case.conduct = _add_counts(case.conduct, conduct_cells(user.passes, user.held, user.labelled))
        if test.score is None and test.labels.by_check:
            # An output without a verdict, and yet people agree with the checks about its user, or do not.
            _count_check_labels(case, test)

    def _count_first(self, index: int, line: int, test: ScoredOutput) -> None:
        """Count the first output of a plain case, which has nothing but its verdicts."""
        key = (test.repeat, test.score, test.status, *[verdict.passed for verdict in test.checks])
        first = self._firsts.get(key)
        if first is None:
            first = self._firsts[key] = CaseCounts()
            self._shared.add(id(first))
            self._count_checks(first, test)
            mark_seen(first.seen, test.repeat or 0)
            first.passed, first.failed = (1, 0) if test.status == "passed" else (0, 1)
            first.score = round((test.score or 0.0) * BILLION)
        self.state.cases[index] = first
        if test.status != "passed" and test.plan is not None:
            self._note_failure(test.plan.case.id, line, test)

    def _note_failure(self, case: str, line: int, test: ScoredOutput) -> None:
        # The first ones of a chunk are enough for the report.
        self._failed += 1
        if len(self._failures) < LISTED:
            self._failures.append((line, shorten(f"{shorten(case)} repeat {test.repeat}: {test.reason}", _EVIDENCE)))

    def _kinds_of(self, index: int) -> KindCounts:
        if index not in self.state.drawn:
            self.state.drawn[index] = KindCounts()
        return self.state.drawn[index]

    def _count_checks(self, case: CaseCounts, test: ScoredOutput) -> None:
        if not test.checks:
            return
        if not case.checks:
            case.checks = [[0, 0, 0] for _ in test.checks]
        for counts, verdict in zip(case.checks, test.checks, strict=True):
            counts[2 if verdict.passed is None else 0 if verdict.passed else 1] += 1

    def has(self, test: ScoredOutput) -> bool:
        """Whether the state already has an output of this case and repeat."""
        if test.plan is None or test.repeat is None or test.score is None:
            return False
        case = self.state.cases.get(test.plan.index)
        return case is not None and has_seen(case.seen, test.repeat)

    def finish(self) -> ChecksState:
        """The state, with quantiles and failures."""
        # The first of each chunk are enough: merging keeps the lowest lines.
        self.state.failures = Faults(self._failed, self._failures)
        self.state.astray = Faults(len(self._unmatched), self._unmatched[:LISTED])
        for name, values in self._used.items():
            setattr(self.state, name, Quantiles.of(values))
        self.state.judges = _count_votes(self._votes)
        self.state.users = count_users(self._users)
        return self.state


def _has_verdicts_alone(test: ScoredOutput) -> bool:
    """Whether an output of a plain case has nothing to count but its verdicts."""
    if test.plan is None or not test.plan.plain or test.score is None or test.repeat is None:
        return False
    return test.usage is NOTHING_USED and test.labels is NO_LABELS and not test.planned and test.user is None


def _count_labels(case: CaseCounts, test: ScoredOutput) -> None:
    """Count the labels of an output with a verdict, and its result by checks that are not fallible."""
    labels = test.labels
    if labels.passes_plain is not None:
        case.plain = _add_counts(case.plain, [int(labels.passes_plain), int(not labels.passes_plain)])
    if labels.passes_labelled is not None:
        case.people = _add_counts(case.people, _cell(test.status == "passed", labels.passes_labelled))
    if labels.by_check:
        _count_check_labels(case, test)


def _count_check_labels(case: CaseCounts, test: ScoredOutput) -> None:
    cells = [_cell(verdict.passed, label) for verdict, label in zip(test.checks, test.labels.by_check, strict=True)]
    case.labels = _add_each(case.labels, cells)


def _cell(passed: bool | None, label: bool | None) -> list[int]:
    """One in the cell for the verdicts of judge and person; all zero if either is missing."""
    cells = [0, 0, 0, 0]
    if passed is not None and label is not None:
        cells[2 * (not passed) + (not label)] = 1
    return cells
