"""Runs whose cases were asked no more once they were decided: what they may be compared with."""

from __future__ import annotations

from evalq.evalcore.compare.summary import CaseSummary

__all__ = ["asked_alike"]


def asked_alike(base: CaseSummary, cand: CaseSummary) -> bool:
    """Whether answers stopped neither side, or both of them in the same way: by --stop, of as many calls at most.

    A case that stops has been asked the longer the more its answers differ, so that its mean leans to what it mostly
    answers. Two runs that stop alike lean alike; beside one that was asked to the end, or more often, such a mean has
    changed though nothing did.
    """
    if not (base.stopped or cand.stopped):
        return True
    return bool(base.stopped and cand.stopped) and _most(base) == _most(cand)


def _most(run: CaseSummary) -> int:
    """Calls of the case that took most: all that were planned, where any case was asked to the end."""
    columns = [column.count for column in run.columns.values()]
    return max((max(counts) + lacking for *counts, lacking in zip(*columns, run.missing, strict=True)), default=0)
