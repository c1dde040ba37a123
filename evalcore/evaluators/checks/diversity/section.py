"""What the report says of diversity: by case, by tag, and whether answers collapsed anywhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.embeddings import VectorKinds
from evalq.evalcore.evaluators.checks.diversity.kind_counts import KindCounts
from evalq.evalcore.evaluators.checks.diversity.looser import edged, looser, without_doubt
from evalq.evalcore.evaluators.checks.diversity.near import Kinds
from evalq.evalcore.evaluators.checks.diversity.pairs import by_judge
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Diversity, diversity_of
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.modes.block import modes_block, share_rule
from evalq.evalcore.modes.intervals import mean_interval
from evalq.evalcore.modes.nowhere import CaseCounts, collapse_nowhere

__all__ = ["VERDICTS", "diversity_section"]

_EMBEDDERS = 100
VERDICTS = ("collapsed", "diverse", "inconclusive", "no_repeats", "no_data")


class _Told(NamedTuple):
    """A case, its entry of the report, and how often each kind came."""

    case: Case
    entry: dict[str, Json]
    counts: list[int]


def diversity_section(drawn: Sequence[tuple[Case, KindCounts, int]], params: ChecksParams) -> dict[str, Json]:
    """``diversity`` of the results; nothing where no case's answers are counted by kind.

    ``drawn`` has each selected case with its answers and the calls planned if it could stop early, else 0.
    """
    told = [
        _entry(case, answers, planned, how)
        for case, answers, planned in drawn
        if (how := diversity_of(case, params)) is not None
    ]
    if not told:
        return {}
    tags: dict[str, list[_Told]] = {}
    for each in told:
        for tag in each.case.tags:
            tags.setdefault(tag, []).append(each)
    return {
        "diversity": {
            **_nowhere(told),
            **_over_cases(told),
            "by_tag": [{"tag": tag, "cases": len(own), **_over_cases(own)} for tag, own in sorted(tags.items())],
            "by_case": [each.entry for each in told],
        }
    }


def _entry(case: Case, answers: KindCounts, planned: int, how: Diversity) -> _Told:
    texts = answers.counts()
    near = None if how.by == "text" else answers.kinds(how)
    counts = near.counts() if near else list(texts.values())
    block = modes_block(counts, how.collapse_share, planned)
    n = sum(counts)
    entry: dict[str, Json] = {
        "case": case.id,
        "by": how.by,
        "collapse_share": how.collapse_share,
        "answers": n,
        "left_out": answers.left_out,
        "commonest": _commonest(texts),
        "distinct": {"text": len(texts), "kinds": len(counts)},
        **({"similarity": how.similarity, "least_alike": near.least_alike()} if near else {}),
        # What stands below replaces what stands above: vectors that cannot be compared undo any other verdict.
        **block,
        **(_at_the_edge(answers, how, near, planned) if near and n else {}),
        **(_by_letters(near, how, planned) if isinstance(near, Kinds) and n else {}),
        # A single answer repeats nothing, so there is nothing to judge.
        **({"verdict": "no_repeats"} if n == 1 else {}),
        **_by_vectors(answers, how, n),
        # Beside the verdict, which stays what it is, and so does what a gate asks of it.
        **({"by_judge": by_judge(answers.halves, how.collapse_share, planned)} if how.judge else {}),
        **({"stop": {"rule": WHEN_DECIDED, "of": planned}} if planned else {}),
    }
    return _Told(case, entry, counts)


def _at_the_edge(answers: KindCounts, how: Diversity, near: Kinds | VectorKinds, planned: int) -> dict[str, Json]:
    """Share and verdict where a little less likeness is allowed for, and a frame of near answers does not count."""
    mode = near.mode
    less, judged, n = looser(how), share_rule(planned), sum(answers.counts().values())
    loose = answers.kinds(less).mode
    found = edged(judged, mode, loose, n, how.collapse_share)
    if isinstance(near, Kinds) and not without_doubt(found.verdict, near, judged, how):
        found = found._replace(verdict="inconclusive")
    # Calls to decide were reckoned for the plain rule: where the edge undoes its verdict there is no such number.
    decided = {} if found.verdict == judged.verdict(mode, n, how.collapse_share) else {"runs_to_decide": None}
    return {
        "mode_share": {"value": mode / n, "low": found.low, "high": found.high},
        "looser": {"similarity": less.similarity, "mode_share": loose / n},
        "verdict": found.verdict,
        **decided,
    }


def _by_letters(near: Kinds, how: Diversity, planned: int) -> dict[str, Json]:
    """What is left of the answers without their frame; the p-value of a collapse that is one with it and without."""
    left, judged, n, share = near.without_frame(), share_rule(planned), near.answers, how.collapse_share
    verdict = judged.verdict(left.mode, n, share)
    least = near.least_alike()
    # Steps from one answer to the next are no evidence that their ends are one.
    chained = least is None or round(least, 9) < how.similarity
    return {
        "without_frame": {"mode_share": left.mode / n, "verdict": verdict, "telling": left.telling},
        "p_collapsed": 1.0 if chained else judged.p_value(min(near.mode, left.mode), n, share),
    }


def _commonest(texts: Mapping[bytes, int]) -> dict[str, Json] | None:
    """The commonest text by its name in records.jsonl, and how often it came; of several the first by name."""
    if not texts:
        return None
    text = min(texts, key=lambda text: (-texts[text], text))
    return {"kind": text.hex(), "answers": texts[text]}


def _by_vectors(answers: KindCounts, how: Diversity, n: int) -> dict[str, Json]:
    """What is to be known where an embedder was asked. Vectors of two embedders cannot be compared, nor judged.

    Nor can those of two lengths, as one embedder gives whose model was changed under its name.
    """
    if how.by != "embedding":
        return {}
    mixed: dict[str, Json] = {"verdict": "inconclusive", "runs_to_decide": None}
    told = {"without_vector": answers.without, "embedders": _embedders(answers.embedders)}
    several = len(answers.embedders) > 1 or len(set(map(len, answers.likeness.values()))) > 1
    return {**told, **(mixed if several and n > 1 else {})}


def _embedders(counts: Mapping[str, int]) -> list[Json]:
    """Targets with the digests of their settings, each with how many answers it gave the vectors of."""
    # From behind: a target's name may have spaces, a digest has none.
    return [dict(zip(("target", "config"), name.rsplit(" ", 1), strict=True)) | {"answers": counts[name]}
            for name in sorted(counts)[:_EMBEDDERS]]  # fmt: skip


def _nowhere(told: Sequence[_Told]) -> dict[str, Json]:
    """The verdict over all cases; where none has a second answer, it has nothing to judge either."""
    found = collapse_nowhere(_counts(told))
    if any(each.entry["answers"] > 1 for each in told):
        return found
    return {**found, "verdict": "no_repeats" if any(each.entry["answers"] for each in told) else "no_data"}


def _counts(told: Sequence[_Told]) -> Iterator[CaseCounts]:
    for each in told:
        yield CaseCounts(each.case.id, each.entry["p_collapsed"], each.entry["verdict"])


def _over_cases(told: Sequence[_Told]) -> dict[str, Json]:
    """How many cases have which verdict, and means over those with repeats, by the cases' weights.

    The chance that two answers are of one kind has an interval, about these cases: its estimate is unbiased in each,
    however few its answers are. The share of the commonest kind has none: it is too high where answers are few.
    """
    verdicts = Counter(each.entry["verdict"] for each in told)
    known = [each for each in told if each.entry["answers"] > 1]
    return {
        "verdicts": {name: verdicts[name] for name in VERDICTS},
        "effective_modes": _mean(known, lambda entry: entry["effective_modes"]["q1"]),
        "mode_share": _mean(known, lambda entry: entry["mode_share"]["value"]),
        "collision_probability": _agreement(known),
    }


def _agreement(told: Sequence[_Told]) -> dict[str, Json]:
    """The chance that two answers to a case are of one kind, mean over these cases, with its interval."""
    own = [each.entry["collision_probability"] for each in told]
    bounds = mean_interval([(each["value"], each["low"], each["high"]) for each in own], [e.case.weight for e in told])
    return {
        "value": _mean(told, lambda entry: entry["collision_probability"]["value"]),
        "low": bounds[0] if bounds else None,
        "high": bounds[1] if bounds else None,
    }


def _mean(told: Sequence[_Told], value: Callable[[Mapping[str, Json]], float]) -> float | None:
    """By weight; summed exactly, since the last digit must not depend on the order of the cases."""
    whole = math.fsum(each.case.weight for each in told)
    return math.fsum(each.case.weight * value(each.entry) for each in told) / whole if whole else None
