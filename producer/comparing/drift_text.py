"""Drift in words: which runs, since when, how large, on what evidence, and what ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalq.evalcore.compare.drift import CLEARED, MOST, PAGED, WORSE
from evalq.evalcore.compare.drift_record import DriftState, MeasureState

__all__ = ["drift_lines"]


def drift_lines(states: Sequence[DriftState]) -> Iterator[str]:
    """A line for each measure of each chain; what ends a page once, at the end.

    ``states`` are a history's chains. Not made safe for a terminal.
    """
    several = len(states) > 1
    for state in states:
        called = state.name or state.specification[:8]
        # Runs that another version of the evaluator judged are a chain of their own: two of one name would puzzle.
        if len({other.version for other in states if (other.name, other.specification) == _place(state)}) > 1:
            called = f"{called} (version {state.version} of the evaluator)"
        whose = f"{called}: " if several or state.name else ""
        for name, measure in sorted(state.measures.items()):
            yield f"{whose}{name}: {_measure(state, measure)}"
    if any(state.drifting for state in states):
        yield (
            f"The alert ends when good runs bring the evidence below {CLEARED:,.0f} to 1. If the new level is right, "
            "approve it: evalq baseline set NAME RUN (with --broker, where a ledger counts)."
        )


def _place(state: DriftState) -> tuple[str, str]:
    return state.name, state.specification


def _measure(state: DriftState, measure: MeasureState) -> str:
    reference = f"{'the approved run' if state.kind == 'baseline' else 'the first run'} {state.reference}"
    # Untouched where no run since then has values of it, which some runs of an optional one have not.
    if not state.runs or measure == MeasureState():
        return f"Nothing to compare yet. The next run is compared with {reference}."
    runs = f"{state.runs:,} run{'' if state.runs == 1 else 's'} after {reference}."
    newest = "The newest run" if measure.run in ("", state.run) else "The newest run that has it"
    change = f"{newest}, {measure.run or state.run}, is {_change(measure.change)} all before it."
    return f"{_verdict(measure)} {runs} {change}"


def _verdict(measure: MeasureState) -> str:
    evidence = f"the evidence is {_evidence(measure.e)} to 1"
    if measure.since:
        return f"WORSE since run {measure.since}: {evidence}; evalq alerts at {PAGED:,.0f} to 1."
    if measure.worse:
        return (
            f"Looks worse since run {measure.worse}: {evidence}, over {WORSE:,.0f}; evalq alerts at {PAGED:,.0f} to 1."
        )
    return f"No drift: {evidence}; evalq alerts at {PAGED:,.0f} to 1."


def _change(share: float) -> str:
    # Not above or below: of some measures less is better. What would be shown as 0.0 is neither.
    points = abs(100 * share)
    if points < 0.05:
        return "level with"
    return f"{points:.1f} points of 100 {'better' if share > 0 else 'worse'} than"


def _evidence(value: float) -> str:
    if value >= MOST * (1 - 1e-9):
        return f"{MOST:,.0f} or more"
    # Evidence of less than 1 to 1 is none; how much less tells a reader nothing.
    return f"{max(1.0, value):,.0f}"
