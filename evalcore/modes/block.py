"""What the counts of a case's answers by kind say: the commonest kind's share, how many kinds, and how sure that is."""

from __future__ import annotations

from collections.abc import Collection

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes.decide import runs_to_decide
from evalq.evalcore.modes.diversity import chao1, chao_wang_jost_bits, coverage, hill
from evalq.evalcore.modes.intervals import collision_interval, collision_probability
from evalq.evalcore.modes.rules import FIXED_RUNS, ShareRule, stopping_rule
from evalq.evalcore.statistics.exact import shannon_bits

__all__ = ["modes_block", "share_of", "share_rule"]

_INTERVAL: dict[str, Json] = {"value": None, "low": None, "high": None}


def share_rule(planned: int) -> ShareRule:
    """How a case is judged: by what may be looked at again and again where it could stop early (``planned`` calls being
    the most), else as a fixed number of runs.
    """
    return stopping_rule(planned) if planned else FIXED_RUNS


def share_of(judged: ShareRule, m: int, n: int) -> dict[str, Json]:
    """The share of a kind that came ``m`` times in ``n``, with its interval; nulls where nothing came."""
    if not n:
        return _INTERVAL
    low, high = judged.interval(m, n)
    return {"value": m / n, "low": low, "high": high}


def modes_block(counts: Collection[int], share: float, planned: int = 0) -> dict[str, Json]:
    """``mode_share`` to ``runs_to_decide`` of answers counted by kind, the verdict being on a mode's ``share``.

    ``p_collapsed`` is how surprising the mode is if no kind has a probability above ``share``. Where the case could
    stop early, ``planned`` calls being the most, share, verdict, p-value and runs to decide allow for it.
    """
    if not counts:
        return _NOTHING
    n, mode, judged = sum(counts), max(counts), share_rule(planned)
    agreement = collision_probability(counts)
    low, high = (None, None) if agreement is None else collision_interval(agreement, mode, n)
    return {
        "mode_share": share_of(judged, mode, n),
        "collision_probability": {"value": agreement, "low": low, "high": high},
        "effective_modes": {"q1": hill(counts, 1), "q2": hill(counts, 2)},
        "entropy_bits": {"plugin": shannon_bits(counts), "chao_wang_jost": chao_wang_jost_bits(counts)},
        "coverage": coverage(counts),
        "chao1": chao1(counts),
        "verdict": judged.verdict(mode, n, share),
        "p_collapsed": judged.p_value(mode, n, share),
        "runs_to_decide": runs_to_decide(mode, n, share, judged.decided),
    }


_NOTHING: dict[str, Json] = {
    "mode_share": _INTERVAL,
    "collision_probability": _INTERVAL,
    "effective_modes": {"q1": None, "q2": None},
    "entropy_bits": {"plugin": None, "chao_wang_jost": None},
    "coverage": None,
    "chao1": None,
    "verdict": "no_data",
    "p_collapsed": None,
    "runs_to_decide": None,
}
