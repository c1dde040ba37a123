"""Whether two runs have answers in common: what both were given at once tells nothing of a difference between them."""

from __future__ import annotations

from evalq.evalcore.compare.run import RunCases

__all__ = ["shared", "shares"]


def shares(run: RunCases, other: RunCases) -> bool:
    """Whether they are one run, or have answers in common: by their lineage, and by a sample of what a cache gave."""
    return run.run == other.run or bool(shared(run, other))


def shared(run: RunCases, other: RunCases) -> str:
    """What two runs have in common, in words; empty for nothing that is known, and for a run and itself."""
    if run.run == other.run:
        return ""
    if common := sorted(_line(run) & _line(other)):
        return f"{run.run} and {other.run} have answers of {', '.join(common[:3])} in common"
    ours, theirs = (set(each.usage.sample) if each.usage is not None else set() for each in (run, other))
    return f"{run.run} and {other.run} have answers in common, from a cache" if ours & theirs else ""


def _line(run: RunCases) -> set[str]:
    # Itself, too: a run that others took answers from has them in common with these, and names none of them.
    return {run.run, *(run.lineage.akin if run.lineage is not None else ())}
