"""The scores in the report: per round, for the set of rounds, and over the Query IDs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from evalq.evalcore.evaluators.planagent.insights import insights, listed
from evalq.evalcore.evaluators.planagent.pairs import QueryReview
from evalq.evalcore.evaluators.planagent.params import KINDS, TOP_SCORE, PlanParams
from evalq.evalcore.evaluators.planagent.rules import SpeedScale
from evalq.evalcore.evaluators.planagent.state import PlanState, RoundStats
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import Table
from evalq.evalcore.statistics.exact import ExactSum

__all__ = ["file_section", "round_order"]

_DIGITS = re.compile(r"(\d+)")

ALSO_FOUND = 5


def round_order(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """A sorting key that puts "2/1" before "10/1": runs of digits count as numbers, of any length."""
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
        **insights(state, review, len(diagnostics), params),
    }


class _Means(NamedTuple):
    """The means of a round or the set, exact, so that they are rounded once; None where there is nothing to average."""

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
        # Ours out and the LLM's in, over the rows that have both: sums are all that a state keeps of them.
        llm_when_present=_mean(total - stats.llm_ours + _exact(stats.llm_score), scored),
        score_zero=_mean(TOP_SCORE * (scored - stats.scores[0]), scored),
        error_or_empty=_mean(TOP_SCORE * (scored - stats.forced), scored),
        seconds=_mean(_exact(stats.seconds), timed),
        points=_mean(_weighted(stats.points), timed),
    )


def _mean_of_means(rounds: Sequence[_Means]) -> _Means:
    """The set: rounds weigh the same, those without a mean nothing."""

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
        # Both readings, always: the specification's text and its published example differ.
        "stability": {key: numbers[key] for key in ("score_zero", "error_or_empty")},
        "speed": {
            "mean_seconds": seconds,
            "points_of_mean": None if seconds is None else SpeedScale(params.speed_bands).points_of_mean(seconds),
            "mean_points": numbers["points"],
        },
        # Unscored rows are no part of it: they are excluded already, by what was asked of them.
        "seconds_excluded": sum(s.scored - s.timed for s in stats),
        "score_counts": {str(i): sum(s.scores[i] for s in stats) for i in range(TOP_SCORE + 1)},
        "speed_counts": {str(i): sum(s.points[i] for s in stats) for i in range(TOP_SCORE + 1)},
    }


def _consistency(review: QueryReview) -> dict[str, Json]:
    same = review.both_pass + review.both_fail
    return {
        # The seed divides by all Query IDs, since all are to have two rounds; one without would count as inconsistent.
        "score": TOP_SCORE * same / review.compared if review.compared else None,
        "reason": None if review.compared else "no Query ID has scored rows in two rounds",
        "both_pass": review.both_pass,
        "both_fail": review.both_fail,
        "mixed": review.compared - same,
        "queries": review.compared,
        "excluded": {"fewer_than_two_rounds": listed(review.short), "repeated": listed(review.repeated)},
    }


def _diagnostics(state: PlanState, params: PlanParams) -> list[Json]:
    """Kinds of check that hardly ever pass, and the key path where the most wanted values stand instead."""
    rows: list[Json] = []
    for kind in KINDS:
        passed, judged = state.kinds.get(kind, (0, 0))
        # In the real file all 146 dataKey checks fail, since its JSON nests them deeper than the seed says.
        if params.diagnostic.suspects(passed, judged):
            paths = state.found.get(kind, Table()).top(1 + ALSO_FOUND)
            found = [{"found_at": path, "would_pass": counts[0]} for path, counts in paths]
            best = found[0] if found else {"found_at": None, "would_pass": 0}
            rows.append({"check": kind, "passed": passed, "of": judged, **best, "also_found": found[1:]})
    return rows


def _weighted(counts: Sequence[int]) -> int:
    return sum(points * rows for points, rows in enumerate(counts))


def _mean(total: Fraction | int, count: int) -> Fraction | None:
    return Fraction(total) / count if count else None


def _exact(total: ExactSum) -> Fraction:
    # Not the float of it: the mean of means is to be rounded once, at the end.
    return int(total.mantissa, 16) * Fraction(2) ** total.exponent
