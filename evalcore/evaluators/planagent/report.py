"""The state that rows merge into, and the report's section for an input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import State
from evalq.evalcore.evaluators.planagent.params import KINDS, TOP_SCORE, PlanParams
from evalq.evalcore.evaluators.planagent.queries import Queries, QueryReview
from evalq.evalcore.evaluators.planagent.record import LlmAgreement
from evalq.evalcore.evaluators.planagent.score import EMPTY, ERROR, UNPARSABLE, SpeedScale
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, Merging, Table
from evalq.evalcore.statistics.exact import ExactSum


def _zeros() -> list[int]:
    return [0] * (TOP_SCORE + 1)


class GroupCount:
    """Positions in the vectors of `PlanState.sets`, `categories` and `forms`."""

    ROWS, LOW, SLOW, JUDGED, FAILED = range(5)


class RoundStats(Merging, array_like=True):
    """One round's rows. Except for ``unscored``, all counts are of scored rows.

    ``scores`` and ``points`` count rows by score and by speed points. ``seconds`` sums the timed rows, and ``forced``
    counts the zeros without judging. ``llm_rows`` have a readable LLM score; ``llm_score`` sums it, and ``llm_ours``
    sums our score of the same rows.
    """

    unscored: int = 0
    scores: list[int] = msgspec.field(default_factory=_zeros)
    forced: int = 0
    points: list[int] = msgspec.field(default_factory=_zeros)
    # Exact sums: those of floats depend on their order, and so on the cut into chunks.
    seconds: ExactSum = msgspec.field(default_factory=ExactSum)
    llm_rows: int = 0
    # With it, the LLM's reading of accuracy can replace our scores by the LLM's in the mean.
    llm_ours: int = 0
    llm_score: ExactSum = msgspec.field(default_factory=ExactSum)

    @property
    def scored(self) -> int:
        """Rows with a score."""
        return sum(self.scores)

    @property
    def timed(self) -> int:
        """Scored rows with seconds."""
        return sum(self.points)

    def add_llm(self, pairs: Sequence[tuple[int, float]]) -> None:
        """Count rows of (our score, the LLM's)."""
        self.llm_rows += len(pairs)
        self.llm_ours += sum(ours for ours, _ in pairs)
        self.llm_score.merge(ExactSum.of(llm for _, llm in pairs))

    def merge(self, later: RoundStats) -> None:
        """Take in further rows of the round."""
        self.unscored += later.unscored
        self.scores = [a + b for a, b in zip(self.scores, later.scores, strict=True)]
        self.forced += later.forced
        self.points = [a + b for a, b in zip(self.points, later.points, strict=True)]
        self.seconds.merge(later.seconds)
        self.llm_rows += later.llm_rows
        self.llm_ours += later.llm_ours
        self.llm_score.merge(later.llm_score)


class PlanState(State):
    """Rows of one plan-agent CSV.

    ``kinds`` has [passed, judged] by kind of check, ``found`` by kind the other key paths of missed values, ``misses``
    [failed, failed in low rows] by check, ``forced`` the zeros by reason, ``errors`` the texts of errors, ``unread``
    [conditions that no form reads, rows with such]. ``sets`` (kinds of checks), ``categories`` and ``forms`` (wanted ->
    answered) have vectors of `GroupCount`.
    """

    rounds: dict[str, RoundStats] = msgspec.field(default_factory=dict)
    queries: Queries = msgspec.field(default_factory=Queries)
    kinds: dict[str, list[int]] = msgspec.field(default_factory=dict)
    found: dict[str, Table] = msgspec.field(default_factory=dict)
    misses: Table = msgspec.field(default_factory=Table)
    sets: Table = msgspec.field(default_factory=Table)
    categories: Table = msgspec.field(default_factory=Table)
    forms: Table = msgspec.field(default_factory=Table)
    forced: dict[str, int] = msgspec.field(default_factory=dict)
    errors: Table = msgspec.field(default_factory=Table)
    llm: LlmAgreement = msgspec.field(default_factory=LlmAgreement)
    unread: list[int] = msgspec.field(default_factory=lambda: [0, 0])

    def merge(self, later: PlanState) -> None:
        """Take in the rows that follow."""
        for name, stats in later.rounds.items():
            self.round(name).merge(stats)
        self.queries.merge(later.queries)
        for kind, (passed, judged) in later.kinds.items():
            self.add_kind(kind, passed, judged)
        for kind, table in later.found.items():
            self.found_paths(kind).merge(table)
        self.misses.merge(later.misses)
        self.sets.merge(later.sets)
        self.categories.merge(later.categories)
        self.forms.merge(later.forms)
        for reason, count in later.forced.items():
            self.forced[reason] = self.forced.get(reason, 0) + count
        self.errors.merge(later.errors)
        self.llm.merge(later.llm)
        self.unread = [a + b for a, b in zip(self.unread, later.unread, strict=True)]

    def to_wire(self) -> bytes:
        """Canonical JSON, tables at their kept size, rounds in the order of their names."""
        if self.queries.pairs is not None:
            # Rounds are numbered in the order of rows, which would make the bytes depend on the cut into chunks.
            self.queries.pairs.sort()
        for table in (self.misses, self.sets, self.categories, self.forms, self.errors, *self.found.values()):
            table.trim()
        return super().to_wire()

    def round(self, name: str) -> RoundStats:
        """The round ``name``, created if it is new."""
        stats = self.rounds.get(name)
        if stats is None:
            stats = self.rounds[name] = RoundStats()
        return stats

    def add_kind(self, kind: str, passed: int, judged: int) -> None:
        """Count checks of one kind."""
        old = self.kinds.setdefault(kind, [0, 0])
        old[0] += passed
        old[1] += judged

    def found_paths(self, kind: str) -> Table:
        """The key paths found for failed checks of one kind."""
        table = self.found.get(kind)
        if table is None:
            table = self.found[kind] = Table()
        return table


# Scores per round, for the set of rounds, and over the Query IDs.

_DIGITS = re.compile(r"(\d+)")

_ALSO_FOUND = 5


def round_order(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A sorting key that puts "2/1" before "10/1": it compares runs of digits as numbers."""
    parts = [
        # By length, then by digits: int() refuses numbers of some thousand digits.
        (0, len(part.lstrip("0")), part.lstrip("0")) if at % 2 else (1, 0, part)
        for at, part in enumerate(_DIGITS.split(name))
    ]
    return parts, name


def file_section(state: PlanState, params: PlanParams) -> dict[str, Json]:
    """The results of one input."""
    stats = {name: state.rounds[name] for name in sorted(state.rounds, key=round_order)}
    means = {name: _round_means(stats[name]) for name in stats}
    review = state.queries.review(len(stats), params.pass_mark)
    diagnostics = _diagnostics(state, params)
    return {
        "rounds": {name: _part(means[name], [stats[name]], params) for name in stats},
        "set": _part(_mean_of_means(list(means.values())), list(stats.values()), params),
        "consistency": _consistency(review),
        "diagnostics": diagnostics,
        "llm": state.llm.section(),
        "unread": {"conditions": state.unread[0], "rows": state.unread[1]},
        **_insights(state, review, len(diagnostics), params),
    }


class _Means(NamedTuple):
    """The means of a round or the set, exact, so that they are rounded once; None without rows."""

    heuristic: Fraction | None
    llm_when_present: Fraction | None
    score_zero: Fraction | None
    error_or_empty: Fraction | None
    seconds: Fraction | None
    points: Fraction | None


def _round_means(stats: RoundStats) -> _Means:
    """The means over a round's scored rows, and over those with seconds."""
    scored, timed = stats.scored, stats.timed
    total = _weighted(stats.scores)
    return _Means(
        heuristic=_mean(total, scored),
        # Replace our scores by the LLM's in the rows that have both; the state has only their sums.
        llm_when_present=_mean(total - stats.llm_ours + _exact(stats.llm_score), scored),
        score_zero=_mean(TOP_SCORE * (scored - stats.scores[0]), scored),
        error_or_empty=_mean(TOP_SCORE * (scored - stats.forced), scored),
        seconds=_mean(_exact(stats.seconds), timed),
        points=_mean(_weighted(stats.points), timed),
    )


def _mean_of_means(rounds: Sequence[_Means]) -> _Means:
    """The means of the set: all rounds with a mean weigh the same."""

    def mean(at: int) -> Fraction | None:
        present = [value for means in rounds if (value := means[at]) is not None]
        return _mean(sum(present, Fraction(0)), len(present))

    return _Means(*map(mean, range(len(_Means._fields))))


def _part(means: _Means, stats: Sequence[RoundStats], params: PlanParams) -> dict[str, Json]:
    """The report's numbers of one round, or of the set of all."""
    numbers = {key: None if value is None else float(value) for key, value in means._asdict().items()}
    seconds = numbers["seconds"]
    scored, unscored = sum(s.scored for s in stats), sum(s.unscored for s in stats)
    return {
        "records": scored + unscored,
        "scored": scored,
        "unscored": unscored,
        "intent": numbers["heuristic"],
        "accuracy": numbers[params.rules.accuracy],
        "accuracy_readings": {key: numbers[key] for key in ("heuristic", "llm_when_present")},
        # Always both readings: the specification's text and its published example differ.
        "stability": {key: numbers[key] for key in ("score_zero", "error_or_empty")},
        "speed": {
            "mean_seconds": seconds,
            "points_of_mean": None if seconds is None else SpeedScale(params.speed_bands).points_of_mean(seconds),
            "mean_points": numbers["points"],
        },
        # Scored rows only: unscored rows are excluded already.
        "seconds_excluded": sum(s.scored - s.timed for s in stats),
        "score_counts": {str(i): sum(s.scores[i] for s in stats) for i in range(TOP_SCORE + 1)},
        "speed_counts": {str(i): sum(s.points[i] for s in stats) for i in range(TOP_SCORE + 1)},
    }


def _consistency(review: QueryReview) -> dict[str, Json]:
    same = review.both_pass + review.both_fail
    return {
        # Not by all Query IDs, as in the seed: one without two rounds would count as inconsistent.
        "score": TOP_SCORE * same / review.compared if review.compared else None,
        "reason": None if review.compared else "no Query ID has scored rows in two rounds",
        "both_pass": review.both_pass,
        "both_fail": review.both_fail,
        "mixed": review.compared - same,
        "queries": review.compared,
        "excluded": {"fewer_than_two_rounds": _listed(review.short), "repeated": _listed(review.repeated)},
    }


def _diagnostics(state: PlanState, params: PlanParams) -> list[Json]:
    """Kinds of check that hardly ever pass, each with the key path that has most of the wanted values."""
    rows: list[Json] = []
    for kind in KINDS:
        passed, judged = state.kinds.get(kind, (0, 0))
        # In the real file all 146 dataKey checks fail, since its JSON nests them deeper than the seed says.
        if params.diagnostic.suspects(passed, judged):
            paths = state.found.get(kind, Table()).top(1 + _ALSO_FOUND)
            rows_by_path = [{"found_at": path, "would_pass": counts[0]} for path, counts in paths]
            best = rows_by_path[0] if rows_by_path else {"found_at": None, "would_pass": 0}
            rows.append({"check": kind, "passed": passed, "of": judged, **best, "also_found": rows_by_path[1:]})
    return rows


def _weighted(counts: Sequence[int]) -> int:
    return sum(points * rows for points, rows in enumerate(counts))


def _mean(total: Fraction | int, count: int) -> Fraction | None:
    return Fraction(total) / count if count else None


def _exact(total: ExactSum) -> Fraction:
    # No float: the mean of means is rounded once, at the end.
    return int(total.mantissa, 16) * Fraction(2) ** total.exponent


# Failures, failure rates, patterns, and the seed's operating checklist.


def _listed(ids: Sequence[str]) -> dict[str, Json]:
    """How many Query IDs, and the first LISTED of them."""
    return {"count": len(ids), "ids": list(ids[:LISTED])}


def _insights(state: PlanState, review: QueryReview, suspects: int, params: PlanParams) -> dict[str, Json]:
    """Failures, failure rates, patterns among low and slow rows, and the operating checklist, each under its key."""
    scored = sum(stats.scored for stats in state.rounds.values())
    return {
        "failures": _failures(state, scored, params),
        # In the order of KINDS: the state has them in the order of rows.
        "checks": [_check(kind, *state.kinds[kind]) for kind in KINDS if kind in state.kinds],
        "check_sets": _groups(state.sets, params),
        "categories": _groups(state.categories, params),
        "forms": _groups(state.forms, params),
        "low_scores": {
            "up_to": params.low_score,
            **_patterns(state, GroupCount.LOW, scored, params),
            "missed": _ranking(state.misses, 1, params),
        },
        "slow": {"points": list(params.slow_points), **_patterns(state, GroupCount.SLOW, scored, params)},
        "checklist": _checklist(state, review, suspects, params),
    }


def _failures(state: PlanState, scored: int, params: PlanParams) -> dict[str, Json]:
    """Zeros without judging, by reason and by pattern of the error's text; and the other zeros."""
    rows = sum(state.forced.values())
    return {
        "rows": rows,
        "share": rows / scored if scored else None,
        "reasons": {reason: state.forced.get(reason, 0) for reason in (ERROR, UNPARSABLE, EMPTY)},
        # Judged rows without a passed check.
        "no_check_passed": sum(stats.scores[0] for stats in state.rounds.values()) - rows,
        "errors": _ranking(state.errors, 0, params),
    }


def _ranking(table: Table, by: int, params: PlanParams) -> dict[str, Json]:
    """The texts with the highest counts, and the count of all others."""
    top = table.top(params.top, by)
    return {
        "top": [{"name": name, "rows": counts[by]} for name, counts in top],
        "other": table.sum(by) - sum(counts[by] for _, counts in top),
    }


def _check(kind: str, passed: int, judged: int) -> dict[str, Json]:
    return {"check": kind, "passed": passed, "of": judged, "failure_rate": (judged - passed) / judged}


def _groups(table: Table, params: PlanParams) -> list[Json]:
    """Rows, low rows, slow rows and failed checks of the biggest groups."""
    return [
        {
            "name": name,
            "rows": counts[GroupCount.ROWS],
            "low": counts[GroupCount.LOW],
            "slow": counts[GroupCount.SLOW],
            "failed": counts[GroupCount.FAILED],
            "of": counts[GroupCount.JUDGED],
            "failure_rate": counts[GroupCount.FAILED] / counts[GroupCount.JUDGED]
            if counts[GroupCount.JUDGED]
            else None,
        }
        for name, counts in table.top(params.top)
    ]


def _patterns(state: PlanState, by: int, scored: int, params: PlanParams) -> dict[str, Json]:
    # Every scored row has one check set, so the sum over sets counts all rows, even those of dropped names.
    rows = state.sets.sum(by)
    return {
        "rows": rows,
        "share": rows / scored if scored else None,
        "check_sets": _ranking(state.sets, by, params),
        "categories": _ranking(state.categories, by, params),
        "forms": _ranking(state.forms, by, params),
    }


def _checklist(state: PlanState, review: QueryReview, suspects: int, params: PlanParams) -> list[Json]:
    """The items of the seed's section 6, each with a status and its facts."""
    rounds = state.rounds.values()
    scored = sum(stats.scored for stats in rounds)
    unscored = sum(stats.unscored for stats in rounds)
    with_llm = sum(stats.llm_rows for stats in rounds)
    low, slow = state.sets.sum(GroupCount.LOW), state.sets.sum(GroupCount.SLOW)
    untimed = scored - sum(stats.timed for stats in rounds)
    zeros = sum(stats.scores[0] for stats in rounds)
    failed = zeros if params.rules.stability == "score_zero" else sum(stats.forced for stats in rounds)
    # As decimals: 1 of 100 reaches a limit of 0.01, though the double 0.01 is a little more.
    unstable = scored > 0 and Fraction(failed, scored) >= Fraction(str(params.stability_warning))
    return [
        {
            "item": "mapping",
            # Failed, not a warning: the seed requires two rounds of each Query ID for any comparison.
            "status": "failed" if review.incomplete or review.repeated else "ok",
            "queries": review.queries,
            "rounds": len(rounds),
            "incomplete": _listed(review.incomplete),
            "repeated": _listed(review.repeated),
        },
        {
            "item": "heuristic",
            # Missing LLM scores are no warning: the heuristic replaces them. Unread conditions are one: a row with one
            # readable condition of three has 5 points if that passes.
            "status": _status(not (state.llm.unreadable or state.unread[0] or unscored)),
            "rows": scored if params.rules.accuracy == "heuristic" else scored - with_llm,
            "with_llm_score": with_llm,
            "unreadable_llm_scores": state.llm.unreadable,
            "unread_conditions": state.unread[0],
            "unscored": unscored,
        },
        {"item": "low_scores", "status": _status(not suspects), "rows": low, "of": scored, "suspect_checks": suspects},
        {"item": "speed", "status": _status(not untimed), "rows": slow, "of": scored, "without_seconds": untimed},
        {
            "item": "stability",
            "status": _status(not unstable),
            "reading": params.rules.stability,
            "failures": failed,
            "of": scored,
            "share": failed / scored if scored else None,
            "limit": params.stability_warning,
        },
    ]


def _status(fine: bool) -> str:
    return "ok" if fine else "warning"
