"""Drift in words: which runs, since when, how large, on what evidence, and what ends it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalq.evalcore.compare.drift import CLEARED, MOST, PAGED
from evalq.evalcore.compare.drift_record import DriftState, MeasureState

__all__ = ["drift_lines"]


def drift_lines(states: Sequence[DriftState]) -> Iterator[str]:
    """A line for each measure of each chain; what ends a page once, at the end.

    ``states`` are a history's chains. Not made safe for a terminal.
    """
    several = len(states) > 1
    for state in states:
        whose = f"{state.name or state.specification[:8]}: " if several or state.name else ""
        for name, measure in sorted(state.measures.items()):
            yield f"{whose}{name}: {_measure(state, measure)}"
    if any(state.drifting for state in states):
        yield (
            f"it ends when good runs bring the e-value below {CLEARED:g}, or when you approve the new level: "
            "evalq baseline set NAME RUN (with --broker, where a ledger counts)"
        )


def _measure(state: DriftState, measure: MeasureState) -> str:
    reference = f"{'the approved run' if state.kind == 'baseline' else 'the first run'} {state.reference}"
    # Untouched where no run since then has values of it, which some runs of an optional one have not.
    if not state.runs or measure == MeasureState():
        return f"nothing to tell yet; the next run is compared with {reference}"
    runs = f"{state.runs:,} run{'' if state.runs == 1 else 's'} after {reference}"
    evidence = f"e-value {_evidence(measure.e)}, it pages from {PAGED:,.0f} on"
    newest = "the newest" if measure.run in ("", state.run) else "the newest that has it"
    change = f"{newest}, {measure.run or state.run}, is {_change(measure.change)} all before it"
    if measure.since:
        return f"WORSE since run {measure.since} ({evidence}); {runs}; {change}"
    return f"no drift ({evidence}); {runs}; {change}"


def _change(share: float) -> str:
    # Not above or below: of some measures less is better. What would be shown as 0.0 is neither.
    points = abs(100 * share)
    if points < 0.05:
        return "level with"
    return f"{points:.1f} points of 100 {'better' if share > 0 else 'worse'} than"


def _evidence(value: float) -> str:
    if value >= MOST * (1 - 1e-9):
        return f"{MOST:,.0f} or more"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
