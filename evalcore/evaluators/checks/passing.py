"""Whether an output passes, by the verdicts of its checks."""

from __future__ import annotations

from collections.abc import Sequence

from evalq.evalcore.evaluators.checks.check import Verdict, mean_by_weight

__all__ = ["passes"]


def passes(verdicts: Sequence[Verdict], least: float | None) -> tuple[str, float, str]:
    """(passed or failed, score, why it failed) where all checks that count were computed."""
    counted = [verdict for verdict in verdicts if verdict.passed is not None]
    score = mean_by_weight((verdict.weight, verdict.score or 0.0) for verdict in counted)
    # A check of weight 0 is shown, and never decides (docs/decisions/0019).
    failed = [verdict for verdict in counted if not verdict.passed and verdict.weight]
    if least is None:
        fine, why = not failed, ""
    else:
        # As decimals: a mean of .1 and .2 must not miss .15 by the last bit.
        fine, why = round(score, 12) >= round(least, 12), f"score {score:.3g} below {least:g}; "
    if fine:
        return "passed", score, ""
    first = failed[0] if failed else None
    reason = f"{first.name}: wanted {first.wanted}, found {first.found}" if first else ""
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return "failed", score, f"{why}{reason}{more}"
