"""Verdicts that may be looked at after every run up to a known cap: the error is spent over the cap, exactly.

A confidence sequence guards against looking for ever. Where at most ``of`` runs will be made, that guard is more than
is needed, and the error it saves decides more cases. The count of an answer of probability p is a binomial walk, so
the chance that it ever crosses given limits is a finite sum: the limits here are, run by run, the widest whose chance
of ever being crossed at the threshold stays within what may be spent by then (Lan and DeMets 1983). So the verdict
depends on (m, n, of) alone. docs/reference/vs-stopping.md has the proofs, and what it saves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from evalq.evalcore.modes.decide import Verdict
from evalq.evalcore.modes.intervals import ALPHA
from evalq.evalcore.modes.sequence import sequence_p_value, sequence_verdict
from evalq.evalcore.statistics.sequences import MOST_LOOKS, Walk, spent

__all__ = ["MOST_LOOKS", "Limits", "limits", "spending_p_value", "spending_verdict"]

_SMALLEST = 2.0**-14
"""P-values are resolved down to this part of the error."""


@dataclass(frozen=True)
class Limits:
    """By number of runs, from 0: the least count of the mode that is collapsed, and the largest that is diverse.

    A limit out of reach is n + 1, or -1. ``above`` and ``below`` are the chances, at the threshold, that a case is ever
    called collapsed or diverse.
    """

    collapsed: tuple[int, ...]
    diverse: tuple[int, ...]
    above: float
    below: float


@lru_cache(maxsize=256)
def limits(share: float, of: int, alpha: float = ALPHA) -> Limits:
    """The limits of a case of ``of`` runs at most, by which either verdict is ever wrong in ``alpha`` at most."""
    collapsed, above = _collapsed(share, of, alpha)
    diverse, below = _diverse(share, of, alpha)
    return Limits(collapsed, diverse, above, below)


def _collapsed(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # The data choose the answer that is looked at. Up to one half, 1/share answers can be as probable as `share`;
    # above, one can, and the worst that the others do is done by a single one that has all of the rest.
    walks = [Walk(share)] if share <= 0.5 else [Walk(share), Walk(1.0 - share)]
    answers = 1.0 / share if share <= 0.5 else 1.0
    found = [1]
    for n in range(1, of + 1):
        for walk in walks:
            walk.step()
        room = alpha * spent(n, of) / answers - sum(walk.gone for walk in walks)
        least = math.floor(share * (n - 1)) + 2  # so that count - 1 > share * (n - 1), as the proof wants
        count = max(walk.end for walk in walks)  # beyond it nothing is left to cross
        while count > least and (more := sum(walk.at(count - 1) for walk in walks)) <= room:
            room -= more
            count -= 1
        for walk in walks:
            walk.stop_from(count)
        found.append(count)
    return tuple(found), answers * sum(walk.gone for walk in walks)


def _diverse(share: float, of: int, alpha: float) -> tuple[tuple[int, ...], float]:
    # Needs no correction: the true mode came at most as often as the one seen most.
    walk, found = Walk(share), [-1]
    for n in range(1, of + 1):
        walk.step()
        room, count = alpha * spent(n, of) - walk.gone, walk.low - 1  # below it nothing is left
        while count + 1 < share * n and (more := walk.at(count + 1)) <= room:
            room -= more
            count += 1
        count = count if count > 0 else -1  # an answer seen most was seen at least once
        walk.stop_to(count)
        found.append(count)
    return tuple(found), walk.gone


def spending_verdict(m: int, n: int, share: float, of: int) -> Verdict:
    """The verdict on a mode seen ``m`` of ``n`` times, where ``of`` runs were to be made at most.

    More runs than were planned, and a cap beyond MOST_LOOKS, are read by the confidence sequence.
    """
    if not n <= of <= MOST_LOOKS:
        return sequence_verdict(m, n, share)
    found = limits(share, of)
    if m >= found.collapsed[n]:
        return "collapsed"
    return "diverse" if m <= found.diverse[n] else "inconclusive"


def spending_p_value(m: int, n: int, share: float, of: int, alpha: float = ALPHA) -> float:
    """How surprising ``m`` of ``n`` is if no answer has a probability above ``share``, however often one has looked.

    The least of the levels alpha times a power of two whose limits call it collapsed, and those of all larger levels
    below 1 as well; 1.0 where the largest does not. The chance that it is ever at most a level is that level at most:
    each has limits of its own, which are crossed that rarely (above ``alpha``, at which a case stops, no more often).
    """
    if not n <= of <= MOST_LOOKS:
        return sequence_p_value(m, n, share)
    largest = 1.0
    while 2 * alpha * largest < 1.0:
        largest *= 2
    level = largest
    while level > _SMALLEST and m >= limits(share, of, alpha * level).collapsed[n]:
        level /= 2
    return 1.0 if level == largest else alpha * 2 * level
