"""Mode collapse over repeated runs: the specification's own numbers, and the robust block next to them.

The specified number is Pielou's evenness: how evenly the answers fall on the modes that were seen. It cannot
tell two even modes from ten, and sits near zero or jumps where one mode dominates; hence the block, which
looks at the commonest answer's share and says how sure it is.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalq.evalcore.evaluators.vs.options import fuzzy_counts, normalized_counts
from evalq.evalcore.evaluators.vs.params import CollapseRule
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes import FIXED_RUNS
from evalq.evalcore.modes.block import modes_block, share_of, share_rule
from evalq.evalcore.statistics.exact import shannon_bits

__all__ = ["ModeCollapseReport", "detect_mode_collapse", "robust_block", "specified"]


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
    # What can be counted counts, as in the seed's code, which asks for no text.
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
    # Of even counts the quotient may be 1 and the last bit of a float.
    evenness = min(1.0, shannon_bits(counts.values()) / math.log2(len(counts))) if len(counts) > 1 else 0.0
    return ModeCollapseReport(
        unique_recommendations=len(counts),
        total_runs=sum(counts.values()),
        diversity_score=evenness,
        mode_collapse_detected=evenness < rule.detected_below,
        # Among equals nlargest keeps the order of first sight, which is how the specification breaks ties.
        most_common=heapq.nlargest(rule.most_common, counts.items(), key=lambda item: item[1]),
        errors=errors,
    )


def robust_block(options: Mapping[str, int], rule: CollapseRule, planned: int = 0) -> dict[str, Json]:
    """``distinct`` to ``fuzzy`` of a mode_collapse entry; all but ``distinct`` and ``fuzzy`` of normalised options.

    Where the case could stop early, ``planned`` calls being the most, share, verdict and runs to decide allow for it.
    """
    normal = normalized_counts(options)
    near = fuzzy_counts(normal, rule.fuzzy_similarity, rule.fuzzy_most)
    return {
        "distinct": {"exact": len(options), "normalized": len(normal), "fuzzy": None if near is None else len(near)},
        # By normalised options: "Use A." and "use a" are one recommendation (SPEC, section 1).
        **modes_block(normal.values(), rule.collapse_share, planned),
        "fuzzy": _fuzzy(near, rule, planned),
    }


def _fuzzy(near: Mapping[str, int] | None, rule: CollapseRule, planned: int) -> dict[str, Json]:
    """What share and verdict are where near-duplicates are one option; None of more options than are compared."""
    if not near:
        return {"mode_share": share_of(FIXED_RUNS, 0, 0), "verdict": None if near is None else "no_data"}
    m, n, judged = max(near.values()), sum(near.values()), share_rule(planned)
    return {"mode_share": share_of(judged, m, n), "verdict": judged.verdict(m, n, rule.collapse_share)}
