"""Diversity in the report: kinds of answers and collapse, by case, by tag and over all cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts, VectorKinds, by_judge
from evalq.evalcore.evaluators.checks.diversity.near import NearKinds
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams, Diversity, diversity_of
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.diversity import modes_block, share_rule
from evalq.evalcore.statistics.mode_share import CaseDiversity, ShareRule, ShareVerdict, collapse_nowhere, mean_interval
from evalq.evalcore.views.markdown import NONE, decimals, escape, percent_between, table

_LESS = 0.1
_LEAST = 0.01


class ShareBounds(NamedTuple):
    """Bounds of the commonest kind's share, and the verdict on it."""

    low: float
    high: float
    verdict: ShareVerdict


def _looser(how: Diversity) -> Diversity:
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


def without_doubt(said: str, kinds: NearKinds, judged: ShareRule, how: Diversity) -> bool:
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


# What the report says of diversity: by case, by tag, and whether answers collapsed anywhere.

_EMBEDDERS = 100
VERDICTS = ("collapsed", "diverse", "inconclusive", "no_repeats", "no_data")


class _CaseVerdict(NamedTuple):
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
    tags: dict[str, list[_CaseVerdict]] = {}
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


def _entry(case: Case, answers: KindCounts, planned: int, how: Diversity) -> _CaseVerdict:
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
        **(_by_letters(near, how, planned) if isinstance(near, NearKinds) and n else {}),
        # A single answer repeats nothing, so there is nothing to judge.
        **({"verdict": "no_repeats"} if n == 1 else {}),
        **_by_vectors(answers, how, n),
        # Beside the verdict, which stays what it is, and so does what a gate asks of it.
        **({"by_judge": by_judge(answers.halves, how.collapse_share, planned)} if how.judge else {}),
        **({"stop": {"rule": WHEN_DECIDED, "of": planned}} if planned else {}),
    }
    return _CaseVerdict(case, entry, counts)


def _at_the_edge(answers: KindCounts, how: Diversity, near: NearKinds | VectorKinds, planned: int) -> dict[str, Json]:
    """Share and verdict where a little less likeness is allowed for, and a frame of near answers does not count."""
    mode = near.mode
    less, judged, n = _looser(how), share_rule(planned), sum(answers.counts().values())
    loose = answers.kinds(less).mode
    found = edged(judged, mode, loose, n, how.collapse_share)
    if isinstance(near, NearKinds) and not without_doubt(found.verdict, near, judged, how):
        found = found._replace(verdict="inconclusive")
    # Calls to decide were reckoned for the plain rule: where the edge undoes its verdict there is no such number.
    decided = {} if found.verdict == judged.verdict(mode, n, how.collapse_share) else {"runs_to_decide": None}
    return {
        "mode_share": {"value": mode / n, "low": found.low, "high": found.high},
        "looser": {"similarity": less.similarity, "mode_share": loose / n},
        "verdict": found.verdict,
        **decided,
    }


def _by_letters(near: NearKinds, how: Diversity, planned: int) -> dict[str, Json]:
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


def _nowhere(told: Sequence[_CaseVerdict]) -> dict[str, Json]:
    """The verdict over all cases; where none has a second answer, it has nothing to judge either."""
    found = collapse_nowhere(_counts(told))
    if any(each.entry["answers"] > 1 for each in told):
        return found
    return {**found, "verdict": "no_repeats" if any(each.entry["answers"] for each in told) else "no_data"}


def _counts(told: Sequence[_CaseVerdict]) -> Iterator[CaseDiversity]:
    for each in told:
        yield CaseDiversity(each.case.id, each.entry["p_collapsed"], each.entry["verdict"])


def _over_cases(told: Sequence[_CaseVerdict]) -> dict[str, Json]:
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


def _agreement(told: Sequence[_CaseVerdict]) -> dict[str, Json]:
    """The chance that two answers to a case are of one kind, mean over these cases, with its interval."""
    own = [each.entry["collision_probability"] for each in told]
    bounds = mean_interval([(each["value"], each["low"], each["high"]) for each in own], [e.case.weight for e in told])
    return {
        "value": _mean(told, lambda entry: entry["collision_probability"]["value"]),
        "low": bounds[0] if bounds else None,
        "high": bounds[1] if bounds else None,
    }


def _mean(told: Sequence[_CaseVerdict], value: Callable[[Mapping[str, Json]], float]) -> float | None:
    """By weight; summed exactly, since the last digit must not depend on the order of the cases."""
    whole = math.fsum(each.case.weight for each in told)
    return math.fsum(each.case.weight * value(each.entry) for each in told) / whole if whole else None


# Diversity as Markdown: what is known of collapse, and the cases nearest to it.

_CASES = 50
_NAMED = 10
_COLUMNS = (
    "Case",
    "By",
    "Verdict",
    "Commonest kind (95 %)",
    "Answers",
    "Texts → kinds",
    "Effective kinds",
    "Answers to decide",
)
_JUDGED = (
    "Of pairs, a judge: the share of pairs of answers that say the same. Collapsed where it surely is over "
    "collapse_share, diverse where it surely is under its square; each by itself is wrong in 2.5 % at most, if the "
    "judge is right. Pairs without a verdict count against either."
)


def diversity_markdown(results: Mapping[str, Json]) -> str:
    """Kinds of answers, and whether they collapsed; nothing where they are not counted."""
    found = results.get("diversity")
    if found is None:
        return ""
    entries = sorted(found["by_case"], key=_nearest)
    judged = any("by_judge" in entry for entry in entries)
    # A further column, only where a judge was to compare answers.
    columns, more_cells = ((*_COLUMNS, "Of pairs, a judge"), _judged) if judged else (_COLUMNS, _nothing)
    more = f"The {_CASES} cases nearest to collapse:" if len(entries) > _CASES else ""
    parts = [
        "## Diversity",
        *_said(found),
        more,
        table(columns, [(*_row(entry), *more_cells(entry)) for entry in entries[:_CASES]]),
        _JUDGED if judged else "",
        _tags(found),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _judged(entry: Mapping[str, Json]) -> tuple[str]:
    return (by_a_judge(entry) or NONE,)


def _nothing(entry: Mapping[str, Json]) -> tuple[()]:
    return ()


def by_a_judge(entry: Mapping[str, Json]) -> str:
    """What a judge of pairs came to, with the pairs that say nothing by name; empty where none was to be asked."""
    told = entry.get("by_judge")
    if told is None:
        return ""
    chance = told["collision_probability"]
    said = f"{told['verdict'].replace('_', ' ')}: {told['same']} of {told['pairs']} the same"
    bounds = f", {percent_between(chance['value'], chance['low'], chance['high'])}" if told["pairs"] else ""
    lost = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in told["left_out"].items() if count)
    return said + bounds + (f" ({lost})" if lost else "")


def _said(found: Mapping[str, Json]) -> tuple[str, str]:
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in found["verdicts"].items() if count)
    named = ", ".join(escape(shorten(item["case"])) for item in found["collapsed"][:_NAMED])
    verdict = found["verdict"].replace("_", " ") + (f" ({named})" if named else "")
    error = f"family-wise error at most {found['alpha']:.1%} ({found['correction']})"
    ways = " or ".join(sorted({entry["by"] for entry in found["by_case"]}))
    error += f", if answers alike by {ways} are one"
    agreement = found["collision_probability"]
    alike = percent_between(agreement["value"], agreement["low"], agreement["high"])
    kinds = f"effective kinds: {decimals(found['effective_modes'])}; means over cases with repeats"
    return (
        f"Collapse nowhere: {verdict}, over {found['cases']} cases, {error}. Each by itself: {counted}",
        f"Two answers to a case are of one kind: {alike}; {kinds}",
    )


def _tags(found: Mapping[str, Json]) -> str:
    rows: list[tuple[object, ...]] = [
        (shorten(each["tag"]), each["cases"], each["verdicts"]["collapsed"], decimals(each["effective_modes"]))
        for each in found["by_tag"][:_CASES]
    ]
    return table(("Tag", "Cases", "Collapsed", "Effective kinds"), rows) if rows else ""


def _nearest(entry: Mapping[str, Json]) -> tuple[float, str]:
    return -(entry["mode_share"]["value"] or 0.0), entry["case"]


def chained(entry: Mapping[str, Json]) -> str:
    """Says so where the commonest kind has texts not half as alike as near ones are: steps led from one to another."""
    least = entry.get("least_alike")
    return f" (a chain: {least:.2f} alike at its ends)" if least is not None and least < entry["similarity"] / 2 else ""


def _row(entry: Mapping[str, Json]) -> tuple[object, ...]:
    said, distinct, more = entry["mode_share"], entry["distinct"], entry["runs_to_decide"]
    return (
        shorten(entry["case"]),
        f"{entry['by']} {entry['similarity']:g}" if "similarity" in entry else entry["by"],
        entry["verdict"].replace("_", " ") + chained(entry),
        percent_between(said["value"], said["low"], said["high"]),
        entry["answers"],
        f"{distinct['text']} → {distinct['kinds']}",
        decimals(entry["effective_modes"]["q1"]),
        NONE if more is None else more,
    )
