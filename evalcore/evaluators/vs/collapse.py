"""Mode collapse over repeated runs: the specification's own numbers, and the robust block next to them.

The specified number is Pielou's evenness: how evenly the answers fall on the modes that were seen. It cannot
tell two even modes from ten, and sits near zero or jumps where one mode dominates; hence the block, which
looks at the commonest answer's share and says how sure it is.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalq.evalcore.evaluators.vs.options import fuzzy_counts, normalized_counts
from evalq.evalcore.evaluators.vs.params import CollapseRule
from evalq.evalcore.evaluators.vs.stats import (
    ALPHA,
    FIXED_RUNS,
    ShareRule,
    chao1,
    chao_wang_jost_bits,
    collision_interval,
    collision_probability,
    coverage,
    hill,
    holm,
    runs_to_decide,
    stopping_rule,
)
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.stats import shannon_bits

__all__ = ["CaseCounts", "ModeCollapseReport", "collapse_nowhere", "detect_mode_collapse", "robust_block", "specified"]


@dataclass(frozen=True, kw_only=True)
class ModeCollapseReport:
    """The specification's five attributes, over runs with an option; ``errors`` counts those without.

    With no option at all ``diversity_score`` and ``mode_collapse_detected`` are None: there is nothing to say.
    """

    unique_recommendations: int
    total_runs: int
    diversity_score: float | None
    mode_collapse_detected: bool | None
    most_common: list[tuple[Any, int]]
    errors: int


def detect_mode_collapse(outputs: Sequence[dict[str, Any]]) -> ModeCollapseReport:
    """Whether repeated runs of one input recommend the same thing, from their ``vs_metadata.final_selection.option``.

        chosen = [{"vs_metadata": {"final_selection": {"option": name}}} for name in "AAAAAAAAAB"]
        detect_mode_collapse(chosen).diversity_score       # 0.469: the entropy of 9 to 1, over log2(2)

    ``diversity_score`` is the entropy of the options divided by the logarithm of their number, 0 for a single one;
    below 0.3 a collapse is detected. Options are compared as they are written. A run without an option (or with one
    that cannot be counted, such as a list) is an error: excluded and counted. `robust_block` says how sure one can be.
    """
    options = [option for option in map(_recommended, outputs) if option is not None]
    return specified(Counter(options), CollapseRule(), errors=len(outputs) - len(options))


def _recommended(output: object) -> Hashable | None:
    for key in ("vs_metadata", "final_selection", "option"):
        output = output.get(key) if isinstance(output, dict) else None
    try:
        hash(output)
    except TypeError:
        return None
    return output


def specified(counts: Mapping[Any, int], rule: CollapseRule, errors: int = 0) -> ModeCollapseReport:
    """The report for options counted in order of first sight, which breaks ties among the most common."""
    if not counts:
        return ModeCollapseReport(
            unique_recommendations=0,
            total_runs=0,
            diversity_score=None,
            mode_collapse_detected=None,
            most_common=[],
            errors=errors,
        )
    evenness = shannon_bits(counts.values()) / math.log2(len(counts)) if len(counts) > 1 else 0.0
    return ModeCollapseReport(
        unique_recommendations=len(counts),
        total_runs=sum(counts.values()),
        diversity_score=evenness,
        mode_collapse_detected=evenness < rule.detected_below,
        # Among equals nlargest keeps the order of first sight, which is how the specification breaks ties.
        most_common=heapq.nlargest(rule.most_common, counts.items(), key=lambda item: item[1]),
        errors=errors,
    )


def share_rule(planned: int) -> ShareRule:
    """How a case is judged: by what may be looked at again and again where it could stop early (``planned`` calls being
    the most), else as a fixed number of runs.
    """
    return stopping_rule(planned) if planned else FIXED_RUNS


def robust_block(options: Mapping[str, int], rule: CollapseRule, planned: int = 0) -> dict[str, Json]:
    """``distinct`` to ``fuzzy`` of a mode_collapse entry; all but ``distinct`` and ``fuzzy`` of normalised options.

    Where the case could stop early, ``planned`` calls being the most, share, verdict and runs to decide allow for it.
    """
    normal = normalized_counts(options)
    near = fuzzy_counts(normal, rule.fuzzy_similarity, rule.fuzzy_most)
    counts = sorted(normal.values(), reverse=True)
    distinct = {"exact": len(options), "normalized": len(normal), "fuzzy": None if near is None else len(near)}
    if not counts:
        return {"distinct": distinct, **_NOTHING}
    n = sum(counts)
    judged = share_rule(planned)
    agreement = collision_probability(counts)
    collision_low, collision_high = (None, None) if agreement is None else collision_interval(agreement, counts[0], n)
    return {
        "distinct": distinct,
        "mode_share": _share(judged, counts[0], n),
        "collision_probability": {"value": agreement, "low": collision_low, "high": collision_high},
        "effective_modes": {"q1": hill(counts, 1), "q2": hill(counts, 2)},
        "entropy_bits": {"plugin": shannon_bits(counts), "chao_wang_jost": chao_wang_jost_bits(counts)},
        "coverage": coverage(counts),
        "chao1": chao1(counts),
        "verdict": judged.verdict(counts[0], n, rule.collapse_share),
        "runs_to_decide": runs_to_decide(counts[0], n, rule.collapse_share, judged.decided),
        "fuzzy": _NO_FUZZY if near is None else _fuzzy(judged, max(near.values()), n, rule),
    }


def _share(judged: ShareRule, m: int, n: int) -> dict[str, Json]:
    low, high = judged.interval(m, n)
    return {"value": m / n, "low": low, "high": high}


def _fuzzy(judged: ShareRule, m: int, n: int, rule: CollapseRule) -> dict[str, Json]:
    """What share and verdict are where near-duplicates are one option."""
    return {"mode_share": _share(judged, m, n), "verdict": judged.verdict(m, n, rule.collapse_share)}


_INTERVAL: dict[str, Json] = {"value": None, "low": None, "high": None}
_NOTHING: dict[str, Json] = {
    "mode_share": _INTERVAL,
    "collision_probability": _INTERVAL,
    "effective_modes": {"q1": None, "q2": None},
    "entropy_bits": {"plugin": None, "chao_wang_jost": None},
    "coverage": None,
    "chao1": None,
    "verdict": "no_data",
    "runs_to_decide": None,
    "fuzzy": {"mode_share": _INTERVAL, "verdict": "no_data"},
}
_NO_FUZZY: dict[str, Json] = {"mode_share": _INTERVAL, "verdict": None}
"""Of more options than are compared."""


@dataclass(frozen=True)
class CaseCounts:
    """How often a case's commonest normalised option came, of how many runs with an option, and its verdict.

    ``fuzzy`` is the verdict with near-duplicates as one, None where there is none; ``planned`` as in `robust_block`.
    """

    case: str
    mode: int
    runs: int
    verdict: str
    fuzzy: str | None = None
    planned: int = 0

    @property
    def surely_diverse(self) -> bool:
        """Whether it is diverse by either count: one answer in two wordings looks diverse, and is not."""
        return self.verdict == "diverse" and self.fuzzy in (None, "diverse")

    def p_value(self, share: float) -> float:
        """Against "no option has a probability above ``share``"."""
        return share_rule(self.planned).p_value(self.mode, self.runs, share)


def collapse_nowhere(cases: Iterable[CaseCounts], rule: CollapseRule) -> dict[str, Json]:
    """The one statement over all cases, that none is collapsed: whether it ``holds``, ``fails`` or is ``inconclusive``.

    It fails for the cases whose p-values, adjusted by Holm, are at most ALPHA, so the chance of naming any case
    wrongly stays below ALPHA however many there are. It holds when every case is diverse by itself, which
    needs no adjustment: to hold wrongly, the test of the very case that is collapsed must err (intersection-union).
    """
    known = list(cases)
    tested = [case for case in known if case.runs]
    adjusted = holm([case.p_value(rule.collapse_share) for case in tested])
    collapsed: list[Json] = [
        {"case": case.case, "p": p} for case, p in zip(tested, adjusted, strict=True) if p <= ALPHA
    ]
    if collapsed:
        answer = "fails"
    else:
        answer = "holds" if known and all(case.surely_diverse for case in known) else "inconclusive"
    return {
        "verdict": answer,
        "cases": len(known),
        "collapsed": collapsed,
        "collapse_share": rule.collapse_share,
        "alpha": ALPHA,
        "correction": "Holm",
    }
