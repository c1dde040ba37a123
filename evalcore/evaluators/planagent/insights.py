"""The report's last section as facts: failures, what fails where, and the seed's operating checklist."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from evalq.evalcore.evaluators.planagent.pairs import QueryReview
from evalq.evalcore.evaluators.planagent.params import KINDS, PlanParams
from evalq.evalcore.evaluators.planagent.rules import EMPTY, ERROR, UNPARSABLE
from evalq.evalcore.evaluators.planagent.state import GroupCount, PlanState
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.state import LISTED, Table

__all__ = ["insights", "listed"]


def listed(ids: Sequence[str]) -> dict[str, Json]:
    """How many Query IDs, and the first LISTED of them."""
    return {"count": len(ids), "ids": list(ids[:LISTED])}


def insights(state: PlanState, review: QueryReview, suspects: int, params: PlanParams) -> dict[str, Json]:
    """Failures, failure rates, patterns among low and slow rows, and the operating checklist, each under its key."""
    scored = sum(stats.scored for stats in state.rounds.values())
    return {
        "failures": _failures(state, scored, params),
        # In the order of KINDS: the state has its kinds in that of the rows.
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
    """Zeros that no check was judged for, by reason and by pattern of the error's text; and the other zeros."""
    rows = sum(state.forced.values())
    return {
        "rows": rows,
        "share": rows / scored if scored else None,
        "reasons": {reason: state.forced.get(reason, 0) for reason in (ERROR, UNPARSABLE, EMPTY)},
        # Zeros that were judged. The rubric gives 0 for these, too, but no error explains them.
        "no_check_passed": sum(stats.scores[0] for stats in state.rounds.values()) - rows,
        "errors": _ranking(state.errors, 0, params),
    }


def _ranking(table: Table, by: int, params: PlanParams) -> dict[str, Json]:
    """The texts with the highest counts, and what remains."""
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
    # Every scored row has one check set, so that the sum over sets is over all rows, also of names that were not kept.
    rows = state.sets.sum(by)
    return {
        "rows": rows,
        "share": rows / scored if scored else None,
        "check_sets": _ranking(state.sets, by, params),
        "categories": _ranking(state.categories, by, params),
        "forms": _ranking(state.forms, by, params),
    }


def _checklist(state: PlanState, review: QueryReview, suspects: int, params: PlanParams) -> list[Json]:
    """The seed's section 6, item by item, each with a status and the facts it rests on."""
    rounds = state.rounds.values()
    scored = sum(stats.scored for stats in rounds)
    unscored = sum(stats.unscored for stats in rounds)
    with_llm = sum(stats.llm_rows for stats in rounds)
    low, slow = state.sets.sum(GroupCount.LOW), state.sets.sum(GroupCount.SLOW)
    untimed = scored - sum(stats.timed for stats in rounds)
    zeros = sum(stats.scores[0] for stats in rounds)
    failed = zeros if params.rules.stability == "score_zero" else sum(stats.forced for stats in rounds)
    # As decimals: 1 of 100 reaches a limit of 0.01, though the double 0.01 is a little more than that.
    unstable = scored > 0 and Fraction(failed, scored) >= Fraction(str(params.stability_warning))
    return [
        {
            "item": "mapping",
            # Failed, not a warning: two rounds of each Query ID are the seed's precondition for comparing any.
            "status": "failed" if review.incomplete or review.repeated else "ok",
            "queries": review.queries,
            "rounds": len(rounds),
            "incomplete": listed(review.incomplete),
            "repeated": listed(review.repeated),
        },
        {
            "item": "heuristic",
            # No LLM score at all is no warning, since the heuristic is for that. What it leaves out is one: a row whose
            # one readable condition of three passes has 5 points.
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
