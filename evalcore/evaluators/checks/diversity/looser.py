"""What is said of kinds of near answers: what holds by a little less likeness, and without their frame, too."""

from __future__ import annotations

from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.near import Kinds
from evalq.evalcore.evaluators.checks.params import Diversity
from evalq.evalcore.modes import ShareRule, Verdict

__all__ = ["ShareBounds", "edged", "looser", "without_doubt"]

_LESS = 0.1
_LEAST = 0.01


class ShareBounds(NamedTuple):
    """Bounds of the commonest kind's share, and the verdict on it."""

    low: float
    high: float
    verdict: Verdict


def looser(how: Diversity) -> Diversity:
    """The same with a likeness that is 0.1 less."""
    return how.model_copy(update={"similarity": round(max(_LEAST, how.similarity - _LESS), 9)})


def edged(judged: ShareRule, mode: int, loose: int, answers: int, share: float) -> ShareBounds:
    """Of a commonest kind of ``mode`` answers, ``loose`` where a little less likeness makes a kind.

    A wording at the edge of its kind may stand alone, so that the share seen is too small, and never too large: the
    upper bound is that of the looser kind, and diverse is what both say is diverse.
    """
    low, _ = judged.interval(mode, answers)
    _, high = judged.interval(max(mode, loose), answers)
    said = judged.verdict(mode, answers, share)
    if said == "diverse" and judged.verdict(max(mode, loose), answers, share) != "diverse":
        said = "inconclusive"
    return ShareBounds(low, high, said)


def without_doubt(said: str, kinds: Kinds, judged: ShareRule, how: Diversity) -> bool:
    """Whether a verdict of near kinds, ``collapsed`` or ``diverse``, holds by what letters cannot hide, too.

    Collapsed has to be so without the words that nearly all answers have, and of answers that are near each other
    themselves, without steps between them. Diverse has to be so without these words, and of answers that surely differ:
    one thing said in other words looks diverse to any rule that goes by words.
    """
    left = kinds.without_frame()
    if judged.verdict(left.mode, kinds.answers, how.collapse_share) != said:
        return False
    if said == "collapsed":
        least = kinds.least_alike()
        return least is not None and round(least, 9) >= how.similarity
    return left.telling
