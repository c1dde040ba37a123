"""Whether two runs have answers in common: what both were given at once tells nothing of a difference between them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping

from evalq.evalcore.compare.intervals import t_tail
from evalq.evalcore.compare.run import RunCases
from evalq.evalcore.compare.summary import Bag

__all__ = ["doubled", "same_answers", "same_run", "shared", "shares", "summed"]

Answers = Mapping[str, Mapping[int, int]]
_LEAST_CASES, _LEAST_REPEATS = 10, 2
_EMPTY = hashlib.sha256().hexdigest()
_OF_REPORT = 10
_SURE = 0.001
"""How surprising a share of equal answers has to be, for runs that nobody would suspect otherwise."""


def same_run(run: RunCases, other: RunCases) -> bool:
    """Whether they are one run, of which there may be several copies: nothing tells a run from itself."""
    # What wrote nothing is called by its report, as any other run that found the same is.
    return run.run == other.run and run.run != f"{run.evaluator}-{run.report[:_OF_REPORT]}"


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


def same_answers(run: RunCases, other: RunCases) -> str:
    """Why the recorded answers of ``run`` are copies of the baseline's, in words; empty where they look like its own.

    By the digests of their files, or of all lines in them, in whichever order and files these stand; by cases whose
    answers are the baseline's in any order, more of them than answers of their own could be; or, over at least 10 cases
    with 2 answers or more, by a share of equal (case, repeat, answer) beyond the share of equal answers within the
    baseline. Live answers have attempts of their own, and are a candidate's own, equal or not.
    """
    if run.usage is not None:
        return ""
    if run.inputs and run.inputs == other.inputs:
        return "the outputs are the baseline's, byte for byte"
    if run.lines and other.lines and summed(run.lines) == summed(other.lines):
        return "the outputs are the baseline's, line for line in another order"
    return _rearranged(run.cases.bags, other.cases.bags) or _repeated(run.cases.answers, other.cases.answers)


def _rearranged(ours: Mapping[str, Bag], theirs: Mapping[str, Bag]) -> str:
    """By cases that have the baseline's answers, all of them and no others."""
    both = [(ours[case].whole == bag.whole, bag.chance) for case, bag in theirs.items() if case in ours]
    equal = sum(same for same, _ in both)
    # How likely that many are equal, if each is as likely as it can be for answers of its own.
    chances = [1.0]
    for _, chance in both:
        chances = [
            more * chance + less * (1 - chance) for more, less in zip([0.0, *chances], [*chances, 0.0], strict=True)
        ]
    if not equal or math.fsum(chances[equal:]) > _SURE:
        return ""
    return f"the answers to {equal} case(s) are the baseline's, in another order or the same"


def _repeated(ours: Answers, theirs: Answers) -> str:
    excess = _excess(ours, theirs)
    if len(excess) < _LEAST_CASES:
        return ""
    mean = math.fsum(excess) / len(excess)
    variance = math.fsum((each - mean) ** 2 for each in excess) / (len(excess) - 1) / len(excess)
    # Where all cases are alike the share itself says it: each is equal throughout, and none was within the baseline.
    if mean <= 0 or (variance > 0 and t_tail(mean / math.sqrt(variance), len(excess) - 1) > _SURE):
        return ""
    return (
        f"more answers are equal to the baseline's, repeat by repeat, than equal each other there ({len(excess)} cases)"
    )


def summed(lines: Iterable[str]) -> str:
    """The digest of all lines of several files, in whichever of them they are, from that of each: "COUNT-SUM"."""
    counts, sums = zip(
        *((int(count), int(whole, 16)) for count, _, whole in (each.partition("-") for each in lines)), strict=True
    )
    return f"{sum(counts)}-{sum(sums) % (1 << 128):032x}"


def doubled(run: RunCases) -> str:
    """Which answers of ``run`` count several times, in words; empty where none is known to.

    A file that is there under two names, also with its lines in another order, has each of its answers twice, and
    proves with them what it does not. So has one whose answers, told by their calls, are in another file, too.
    """
    digests = [each for each in run.inputs if each != _EMPTY]
    if copies := len(digests) - len(set(digests)):
        return f"{copies} file(s) have the bytes of another one"
    if copies := len(run.lines) - len(set(run.lines)):
        return f"{copies} file(s) have the lines of another one, in another order"
    return f"{run.doubled} answer(s) or more are in several files" if run.doubled else ""


def _excess(ours: Answers, theirs: Answers) -> list[float]:
    """For each case the share of repeats whose answer is the baseline's, less that of equal answers within it."""
    found = []
    for case, answers in ours.items():
        before = theirs.get(case, {})
        both = answers.keys() & before.keys()
        if len(before) < _LEAST_REPEATS or len(both) < _LEAST_REPEATS:
            continue
        counts = Counter(before.values())
        pairs = len(before) * (len(before) - 1)
        within = sum(count * (count - 1) for count in counts.values()) / pairs
        found.append(sum(answers[at] == before[at] for at in both) / len(both) - within)
    return found
