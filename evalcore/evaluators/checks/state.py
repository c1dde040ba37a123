"""What a chunk of recorded outputs adds up to: counts by case, check and judge, and quantiles of cost and time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.checks.answer import Unreadable, Vote
from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts
from evalq.evalcore.evaluators.checks.score import ScoredOutput
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.model.state import LISTED, Faults, Merging, has_seen, mark_seen, merge_seen, overlap
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.quantiles import Quantiles

# What judges came to: how often each was asked, how often its reply was a verdict, what that took.

_MOST = 100
"""Judges, and digests of each, that are told of: the first ones by name."""
Judges = dict[str, "JudgeTally"]


class JudgeTally(Merging, array_like=True):
    """One judge: votes ``asked``, of which ``failed`` have no reply, and ``unreadable`` one that is no verdict.

    ``configs`` are the digests of its settings, ``templates`` those of the words around the texts.
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
        """Take in the votes of later lines."""
        self.asked += later.asked
        self.failed += later.failed
        self.unreadable += later.unreadable
        self.configs = _first({*self.configs, *later.configs})
        self.templates = _first({*self.templates, *later.templates})
        for mine, theirs in ((self.latency, later.latency), (self.cost, later.cost), (self.tokens, later.tokens)):
            mine.merge(theirs)

    def settled(self) -> JudgeTally:
        """The same in the one order that its wire form has."""
        for quantiles in (self.latency, self.cost, self.tokens):
            quantiles.buckets = dict(sorted(quantiles.buckets.items()))
        return self


def _first(names: Iterable[str]) -> list[str]:
    return sorted(names)[:_MOST]


def _merge_judges(mine: Judges, later: Judges) -> Judges:
    """The judges of both, in the order of their names."""
    for name, tally in later.items():
        if name in mine:
            mine[name].merge(tally)
        else:
            mine[name] = tally
    # The first by name of both are the first of each, so that these are whole however the parts were merged.
    return {name: mine[name].settled() for name in _first(mine)}


def _count_votes(votes: Iterable[tuple[Vote, JudgeQuestion]]) -> Judges:
    """What recorded votes come to, each with what was asked."""
    judges: dict[str, list[tuple[Vote, JudgeQuestion]]] = {}
    for vote, asked in votes:
        judges.setdefault(shorten(vote.judge), []).append((vote, asked))
    return {name: _tally(judges[name]).settled() for name in _first(judges)}


def _tally(votes: list[tuple[Vote, JudgeQuestion]]) -> JudgeTally:
    made = JudgeTally(len(votes))
    latency, cost, tokens = [], [], []
    for vote, asked in votes:
        if vote.failed:
            made.failed += 1
        else:
            made.unreadable += not _is_read(vote, asked)
        if not vote.attempts:
            continue
        # Of the last attempt alone, since those before it gave no reply; all of them were paid for.
        latency.append(vote.attempts[-1].latency_seconds)
        # What was not told is left out: counted as 0 it would make a judge look cheap.
        cost += [sum(known)] if (known := [each.cost for each in vote.attempts if each.cost is not None]) else []
        counts = [n for each in vote.attempts for n in (each.prompt_tokens, each.completion_tokens) if n is not None]
        tokens += [float(sum(counts))] if counts else []
    made.configs = _first({shorten(vote.config) for vote, _ in votes} - {""})
    made.templates = _first({shorten(vote.template) for vote, _ in votes} - {""})
    made.latency, made.cost, made.tokens = (Quantiles.of(values) for values in (latency, cost, tokens))
    return made


def _is_read(vote: Vote, asked: JudgeQuestion) -> bool:
    try:
        vote.read(asked.read)
    except Unreadable:
        return False
    return True


BILLION = 1_000_000_000
"""Scores are added up in billionths: whole numbers add up to the same in any order."""
_EVIDENCE = 300


class CaseCounts(Merging, array_like=True):
    """One case: outputs by status, the sum of their scores in billionths, and the repeats seen.

    ``checks`` has [passed, failed, errors] for each check of the case. ``planned`` is how many calls the case was to
    get if it could stop early, the most that any line says; else 0.

    ``plain`` has [passed, failed] by the checks that are not fallible, of a case that has others, too. ``labels`` has
    for each check how many labelled outputs [both, the judge alone, the person alone, none] passed, and ``people`` the
    same for outputs whose fallible verdicts are all labelled; both are empty where there are none.
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

    @property
    def answers(self) -> int:
        """Outputs with a verdict."""
        return self.passed + self.failed

    @property
    def runs(self) -> int:
        """Outputs of any kind, those without a verdict included."""
        return self.passed + self.failed + self.errors

    def merge(self, later: CaseCounts) -> None:
        """Take in the outputs of later lines."""
        self.passed += later.passed
        self.failed += later.failed
        self.errors += later.errors
        self.score += later.score
        # The most: lines of a sweep that was extended say less of what it was to get before.
        self.planned = max(self.planned, later.planned)
        self.checks = _added_each(self.checks, later.checks)
        self.plain = _added(self.plain, later.plain)
        self.labels = _added_each(self.labels, later.labels)
        self.people = _added(self.people, later.people)
        merge_seen(self.seen, later.seen)


def _added(mine: list[int], later: list[int]) -> list[int]:
    return [a + b for a, b in zip(mine, later, strict=True)] if mine and later else mine or list(later)


def _added_each(mine: list[list[int]], later: list[list[int]]) -> list[list[int]]:
    if mine and later:
        return [_added(a, b) for a, b in zip(mine, later, strict=True)]
    # Copied: later parts are added in place, and must not change the one that these came from.
    return mine or [list(counts) for counts in later]


class ChecksState(State):
    """Cases by their place among the params' cases. ``overlap``: some (case, repeat) came twice, `settle` must look.

    ``last`` is the last line counted, ``repeated`` the lines that `settle` left out, ``failures`` the first outputs
    that failed, each with what it failed by, ``drawn`` the answers of the cases in which they are
    counted by kind. ``judges`` are those whose judgements were counted, by name,
    ``astray`` the labels in lines that are about nothing, ``dead`` the lines without a result.
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
    judges: dict[str, JudgeTally] = msgspec.field(default_factory=dict)
    astray: Faults = msgspec.field(default_factory=Faults)
    dead: list[int] = msgspec.field(default_factory=list)

    def merge(self, later: Self) -> None:
        """Take in the state of the lines that follow."""
        self.overlap = self.overlap or later.overlap
        self.last = max(self.last, later.last)
        self.repeated.merge(later.repeated)
        self.failures.merge(later.failures)
        self.astray.merge(later.astray)
        self.dead += later.dead
        for mine, theirs in ((self.latency, later.latency), (self.cost, later.cost), (self.tokens, later.tokens)):
            mine.merge(theirs)
        if later.judges:
            self.judges = _merge_judges(self.judges, later.judges)
        for index, case in later.cases.items():
            known = self.cases.get(index)
            if known is None:
                self.cases[index] = case
                continue
            self.overlap = self.overlap or overlap(known.seen, case.seen)
            known.merge(case)
        for index, answers in later.drawn.items():
            if index in self.drawn:
                self.drawn[index].merge(answers)
            else:
                self.drawn[index] = answers

    def to_wire(self) -> bytes:
        """JSON of the fields, every mapping in the order of its keys: the same in whatever order parts were merged."""
        self.cases = dict(sorted(self.cases.items()))
        for case in self.cases.values():
            if len(case.seen) > 1:
                case.seen = dict(sorted(case.seen.items()))
        for quantiles in (self.latency, self.cost, self.tokens):
            quantiles.buckets = dict(sorted(quantiles.buckets.items()))
        self.drawn = dict(sorted(self.drawn.items()))
        for answers in self.drawn.values():
            # Parts append their answers in the order of the cut; sorted, equal ones are equal bytes (decision 25).
            answers.sort()
        return msgspec.json.encode(self)


class ChecksGatherer:
    """Adds judgements up to a state. What outputs took is added once at the end: that is cheap for many at a time."""

    def __init__(self) -> None:
        self.state = ChecksState()
        self._latency: list[float] = []
        self._cost: list[float] = []
        self._tokens: list[float] = []
        self._failures: list[tuple[int, str]] = []
        self._astray: list[tuple[int, str]] = []
        self._votes: list[tuple[Vote, JudgeQuestion]] = []

    def add(self, line: int, test: ScoredOutput) -> None:
        """Count the judgement of ``line``; skipped ones and those of no known case leave no trace but the line."""
        self.state.last = line
        plan = test.plan
        if plan is None or test.status == "skipped":
            return
        case = self.state.cases.get(plan.index)
        if case is None:
            case = self.state.cases[plan.index] = CaseCounts()
        case.planned = max(case.planned, test.planned)
        # Also of an output without a verdict: its judge was asked, and paid.
        self._votes += [(vote, plan.asked[vote.check]) for vote in test.votes]
        # Likewise: checks that say something count, even where another makes the output an error.
        self._count_checks(case, test)
        self._astray += [(line, shorten(why, _EVIDENCE)) for why in test.heard.astray]
        if test.score is None or test.repeat is None:
            case.errors += 1
            return
        # Only noted: which output came first is known when all chunks are merged, and `settle` leaves out the others.
        if mark_seen(case.seen, test.repeat):
            self.state.overlap = True
        if test.status == "passed":
            case.passed += 1
        else:
            case.failed += 1
            told = f"{shorten(plan.case.id)} repeat {test.repeat}: {test.reason}"
            self._failures.append((line, shorten(told, _EVIDENCE)))
        case.score += round(test.score * BILLION)
        _count_people(case, test)
        if test.mark.text:
            self._drawn(plan.index).add(test.repeat, test.mark)
        usage = test.usage
        if usage.latency is not None:
            self._latency.append(usage.latency)
        if usage.cost is not None:
            self._cost.append(usage.cost)
        if usage.tokens is not None:
            self._tokens.append(usage.tokens)

    def _drawn(self, index: int) -> KindCounts:
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
        """Whether the state already holds an output of this judgement's case and repeat."""
        if test.plan is None or test.repeat is None or test.score is None:
            return False
        case = self.state.cases.get(test.plan.index)
        return case is not None and has_seen(case.seen, test.repeat)

    def finish(self) -> ChecksState:
        """The state, with quantiles and failures in it."""
        # The chunk's first are enough: of all chunks together the lowest lines are kept.
        self.state.failures = Faults(len(self._failures), self._failures[:LISTED])
        self.state.astray = Faults(len(self._astray), self._astray[:LISTED])
        self.state.latency = Quantiles.of(self._latency)
        self.state.cost = Quantiles.of(self._cost)
        self.state.tokens = Quantiles.of(self._tokens)
        self.state.judges = _count_votes(self._votes)
        return self.state


def _count_people(case: CaseCounts, test: ScoredOutput) -> None:
    """What people said of an output with a verdict, and how it went by checks that are not fallible."""
    said = test.heard
    if said.plain is not None:
        case.plain = _added(case.plain, [int(said.plain), int(not said.plain)])
    if said.people is not None:
        case.people = _added(case.people, _cell(test.status == "passed", said.people))
    if said.labels:
        cells = [_cell(verdict.passed, label) for verdict, label in zip(test.checks, said.labels, strict=True)]
        case.labels = _added_each(case.labels, cells)


def _cell(passed: bool | None, label: bool | None) -> list[int]:
    """One in the cell of the table where the judge and the person meet; none where either says nothing."""
    cells = [0, 0, 0, 0]
    if passed is not None and label is not None:
        cells[2 * (not passed) + (not label)] = 1
    return cells
