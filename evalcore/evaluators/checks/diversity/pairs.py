"""Kinds of answers by a judge: of pairs of a case's answers, repeats 0 and 1, 2 and 3, it says whether both are one.

No answer is in two pairs, so pairs are independent, and the share that says the same is the chance P that two answers
are of one kind. With m the share of the commonest kind, m^2 <= P <= m: m^2 is what this kind alone adds to P, and the
sum of p_k^2 is at most m times the sum of p_k. So a bound of P is one of m, exact for any number of pairs, up to what
the judge gets wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from evalq.evalcore.evaluators.checks.judging.asking import SAME
from evalq.evalcore.evaluators.checks.judging.vote import LONGEST, Unreadable, Vote, about
from evalq.evalcore.evaluators.checks.vocabulary.declaring import JudgeQuestion
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.records.asking import Asked, written
from evalq.evalcore.statistics.rates import exact_interval
from evalq.evalcore.statistics.share_sequence import rate_sequence

__all__ = ["PAIR", "PairHalf", "about_pair", "by_judge", "half_of"]

_LEFT_OUT = ("undecided", "unreadable", "failed", "not_asked")
_SAID = {True: "same", False: "different", None: "undecided"}


class PairHalf(NamedTuple):
    """One answer of a pair. ``text`` stands for it, ``other`` for the text that it was compared with, where it was.

    ``said`` is what the judge found: same, different, undecided, unreadable or failed; empty where none was asked, and
    for the second answer of a pair, whose record says nothing of it.
    """

    repeat: int
    text: str
    other: str = ""
    said: str = ""


def about_pair(text: str, other: str) -> str:
    """The digests of both texts of a pair."""
    return f"{about(text)}.{about(other)}"


def _prompt(asked: str | None, answer: str, other: str, order: int) -> Asked:
    texts = {"first": answer, "second": other}
    return written(SAME, texts if asked is None else {**texts, "input": asked})


def _same_of(reply: dict[str, Any]) -> bool | None:
    same = reply.get("same", "")
    if same is not None and not isinstance(same, bool):
        raise Unreadable('no "same" that is true, false or null')
    return same


PAIR = JudgeQuestion("same-answers", "", 1, 1, SAME.digest, _prompt, _same_of)
"""What is asked about a pair. Once: that two texts say the same does not go by which is read first."""


def half_of(text: str, repeat: int, votes: Iterable[Vote]) -> PairHalf:
    """The answer of a repeat with what was recorded of its pair."""
    own = about(text)
    if repeat % 2:
        return PairHalf(repeat, own)
    # Of this very text: what was said of an answer that was changed since says nothing of this one.
    found = [vote for vote in votes if vote.check == PAIR.key and vote.about.partition(".")[0] == own]
    if not found or len(text) > LONGEST:
        return PairHalf(repeat, own)
    # As for checks: votes of two judges are no verdict.
    said = _said(found[0]) if len({vote.judge for vote in found}) == 1 else "unreadable"
    return PairHalf(repeat, own, found[0].about.partition(".")[2], said)


def _said(vote: Vote) -> str:
    if vote.failed:
        return "failed"
    try:
        return _SAID[vote.read(PAIR.read)]
    except Unreadable:
        return "unreadable"


def by_judge(halves: Sequence[PairHalf], share: float, planned: int) -> dict[str, Json]:
    """``by_judge`` of a case: its pairs, the chance that two answers say the same, the verdict on ``share`` by that.

    A pair without a verdict counts against either: in the lower bound as different, in the upper one as the same. So no
    answer can turn a verdict by what it keeps its judge from saying. Where the case could stop early (``planned`` calls
    being the most) the bounds hold at every number of pairs.
    """
    said, unpaired = _counted(halves)
    same, read, every = said["same"], said["same"] + said["different"], said.total()
    bounds: Callable[[int, int], tuple[float, float]] = rate_sequence if planned else exact_interval
    low = bounds(same, every)[0] if read else None
    high = bounds(same + every - read, every)[1] if read else None
    verdict = "no_repeats" if len(halves) == 1 else "no_data"
    if low is not None and high is not None:
        verdict = "collapsed" if low > share else "diverse" if high < share * share else "inconclusive"
    return {
        "verdict": verdict,
        "pairs": read,
        "same": same,
        "collision_probability": {"value": same / read if read else None, "low": low, "high": high},
        "left_out": {name: said[name] for name in _LEFT_OUT} | {"unpaired": unpaired},
    }


def _counted(halves: Sequence[PairHalf]) -> tuple[Counter[str], int]:
    """How many pairs have which verdict, and how many answers have no other."""
    places: dict[int, tuple[list[PairHalf], Counter[str]]] = {}
    for half in sorted(halves):
        firsts, seconds = places.setdefault(half.repeat // 2, ([], Counter()))
        if half.repeat % 2:
            seconds[half.text] += 1
        else:
            firsts.append(half)
    said, unpaired = Counter[str](), 0
    for firsts, seconds in places.values():
        # Several of one repeat come of several inputs, each with pairs of its own.
        pairs, known = min(len(firsts), seconds.total()), 0
        unpaired += len(firsts) + seconds.total() - 2 * pairs
        for half in firsts:
            if half.said and seconds[half.other]:
                seconds[half.other] -= 1
                said[half.said] += 1
                known += 1
        said["not_asked"] += pairs - known
    return said, unpaired
