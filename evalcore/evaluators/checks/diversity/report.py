"""Diversity in the report: kinds of answers and collapse, by case, by tag and over all cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.diversity.kinds import KindCounts, VectorKinds, by_judge
from evalq.evalcore.evaluators.checks.diversity.near import NearKinds
from evalq.evalcore.evaluators.checks.params import AnyCase, ChecksParams, Diversity, diversity_of
from evalq.evalcore.model.calls import WHEN_DECIDED
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.naming import shorten
from evalq.evalcore.statistics.diversity import modes_block, share_rule
from evalq.evalcore.statistics.mode_share import CaseDiversity, ShareRule, ShareVerdict, collapse_nowhere, mean_interval
from evalq.evalcore.views.markdown import NONE, decimals, escape, percent_between, table

_EDGE = 0.1
_LEAST_SIMILARITY = 0.01


class ShareBounds(NamedTuple):
    """Bounds of the commonest kind's share, and the verdict on it."""

    low: float
    high: float
    verdict: ShareVerdict


def _with_less_similarity(how: Diversity) -> Diversity:
    """The same options with a similarity that is 0.1 lower."""
    return how.model_copy(update={"similarity": round(max(_LEAST_SIMILARITY, how.similarity - _EDGE), 9)})


def bounds_at_the_edge(rule: ShareRule, mode: int, loose: int, answers: int, share: float) -> ShareBounds:
    """The bounds for a commonest kind of ``mode`` answers, or ``loose`` answers with a little less similarity.

    A wording at the edge of its kind may be counted apart, so that the share is too small, but never too large. So the
    upper bound is that of the looser kind, and answers are diverse only if both kinds say so.
    """
    low, _ = rule.interval(mode, answers)
    _, high = rule.interval(max(mode, loose), answers)
    verdict = rule.verdict(mode, answers, share)
    if verdict == "diverse" and rule.verdict(max(mode, loose), answers, share) != "diverse":
        verdict = "inconclusive"
    return ShareBounds(low, high, verdict)


def is_certain(verdict: str, kinds: NearKinds, rule: ShareRule, how: Diversity) -> bool:
    """Whether a verdict of near kinds, ``collapsed`` or ``diverse``, does not depend only on the wording.

    Collapsed must also hold without the words that nearly all answers share, and for answers that are near each other
    directly. Diverse must also hold without these words, and for answers that certainly differ: one statement in
    several wordings looks diverse to any rule based on words.
    """
    residue = kinds.without_frame()
    if rule.verdict(residue.mode, kinds.answers, how.collapse_share) != verdict:
        return False
    if verdict == "collapsed":
        least = kinds.least_alike()
        return least is not None and round(least, 9) >= how.similarity
    return residue.telling


# Diversity in the report: by case, by tag, and over all cases.

_EMBEDDERS = 100
VERDICTS = ("collapsed", "diverse", "inconclusive", "no_repeats", "no_data")


class _CaseVerdict(NamedTuple):
    """A case, its entry in the report, and the number of answers of each kind."""

    case: AnyCase
    entry: dict[str, Json]
    counts: list[int]


def diversity_section(drawn: Sequence[tuple[AnyCase, KindCounts, int]], params: ChecksParams) -> dict[str, Json]:
    """``diversity`` of the results; nothing if no case counts answers by kind.

    ``drawn`` has each selected case, its answers, and the calls planned if it could stop early, else 0.
    """
    verdicts = [
        _entry(case, answers, planned, how)
        for case, answers, planned in drawn
        if (how := diversity_of(case, params)) is not None
    ]
    if not verdicts:
        return {}
    tags: dict[str, list[_CaseVerdict]] = {}
    for each in verdicts:
        for tag in each.case.tags:
            tags.setdefault(tag, []).append(each)
    return {
        "diversity": {
            **_collapse_nowhere(verdicts),
            **_over_cases(verdicts),
            "by_tag": [
                {"tag": tag, "cases": len(tagged), **_over_cases(tagged)} for tag, tagged in sorted(tags.items())
            ],
            "by_case": [each.entry for each in verdicts],
        }
    }


def _entry(case: AnyCase, answers: KindCounts, planned: int, how: Diversity) -> _CaseVerdict:
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
        # Later entries replace earlier ones: vectors that cannot be compared override any other verdict.
        **block,
        **(_at_the_edge(answers, how, near, planned) if near and n else {}),
        **(_frame_block(near, how, planned) if isinstance(near, NearKinds) and n else {}),
        # One answer has no repeats.
        **({"verdict": "no_repeats"} if n == 1 else {}),
        **_vector_block(answers, how, n),
        # Does not change the verdict, nor the rules of a gate.
        **({"by_judge": by_judge(answers.halves, how.collapse_share, planned)} if how.judge else {}),
        **({"stop": {"rule": WHEN_DECIDED, "of": planned}} if planned else {}),
    }
    return _CaseVerdict(case, entry, counts)


def _at_the_edge(answers: KindCounts, how: Diversity, near: NearKinds | VectorKinds, planned: int) -> dict[str, Json]:
    """Share and verdict with bounds for a little less similarity, and without the frame of near answers."""
    mode = near.mode
    less, rule, n = _with_less_similarity(how), share_rule(planned), sum(answers.counts().values())
    loose = answers.kinds(less).mode
    bounds = bounds_at_the_edge(rule, mode, loose, n, how.collapse_share)
    if isinstance(near, NearKinds) and not is_certain(bounds.verdict, near, rule, how):
        bounds = bounds._replace(verdict="inconclusive")
    # The number of calls to decide is for the plain rule; if the verdict differs, there is no such number.
    undecided = {} if bounds.verdict == rule.verdict(mode, n, how.collapse_share) else {"runs_to_decide": None}
    return {
        "mode_share": {"value": mode / n, "low": bounds.low, "high": bounds.high},
        "looser": {"similarity": less.similarity, "mode_share": loose / n},
        "verdict": bounds.verdict,
        **undecided,
    }


def _frame_block(near: NearKinds, how: Diversity, planned: int) -> dict[str, Json]:
    """The answers without their frame, and the p-value of a collapse both with and without it."""
    residue, rule, n, share = near.without_frame(), share_rule(planned), near.answers, how.collapse_share
    verdict = rule.verdict(residue.mode, n, share)
    least = near.least_alike()
    # A chain of near answers is not evidence that its ends are of one kind.
    describe_chain = least is None or round(least, 9) < how.similarity
    return {
        "without_frame": {"mode_share": residue.mode / n, "verdict": verdict, "telling": residue.telling},
        "p_collapsed": 1.0 if describe_chain else rule.p_value(min(near.mode, residue.mode), n, share),
    }


def _commonest(texts: Mapping[bytes, int]) -> dict[str, Json] | None:
    """The commonest text by its kind in records.jsonl, and its count; of several, the first by name."""
    if not texts:
        return None
    text = min(texts, key=lambda text: (-texts[text], text))
    return {"kind": text.hex(), "answers": texts[text]}


def _vector_block(answers: KindCounts, how: Diversity, n: int) -> dict[str, Json]:
    """The embedders of a case. Without a verdict if vectors are of two embedders, and cannot be compared.

    The same holds for vectors of two lengths, from an embedder whose model changed.
    """
    if how.by != "embedding":
        return {}
    mixed: dict[str, Json] = {"verdict": "inconclusive", "runs_to_decide": None}
    block = {"without_vector": answers.without, "embedders": _embedders(answers.embedders)}
    several = len(answers.embedders) > 1 or len(set(map(len, answers.likeness.values()))) > 1
    return {**block, **(mixed if several and n > 1 else {})}


def _embedders(counts: Mapping[str, int]) -> list[Json]:
    """Targets with the digests of their settings, and the number of their vectors."""
    # rsplit, since the name of a target may have spaces, and a digest has none.
    return [dict(zip(("target", "config"), name.rsplit(" ", 1), strict=True)) | {"answers": counts[name]}
            for name in sorted(counts)[:_EMBEDDERS]]  # fmt: skip


def _collapse_nowhere(verdicts: Sequence[_CaseVerdict]) -> dict[str, Json]:
    """The verdict over all cases; no_repeats or no_data if no case has a second answer."""
    block = collapse_nowhere(_counts(verdicts))
    if any(each.entry["answers"] > 1 for each in verdicts):
        return block
    return {**block, "verdict": "no_repeats" if any(each.entry["answers"] for each in verdicts) else "no_data"}


def _counts(verdicts: Sequence[_CaseVerdict]) -> Iterator[CaseDiversity]:
    for each in verdicts:
        yield CaseDiversity(each.case.id, each.entry["p_collapsed"], each.entry["verdict"])


def _over_cases(verdicts: Sequence[_CaseVerdict]) -> dict[str, Json]:
    """The number of cases by verdict, and means by weight over cases with repeats.

    The chance that two answers are of one kind has an interval for these cases, since its estimate is unbiased for any
    number of answers. The share of the commonest kind has none: with few answers, it is too high.
    """
    counts = Counter(each.entry["verdict"] for each in verdicts)
    known = [each for each in verdicts if each.entry["answers"] > 1]
    return {
        "verdicts": {name: counts[name] for name in VERDICTS},
        "effective_modes": _mean(known, lambda entry: entry["effective_modes"]["q1"]),
        "mode_share": _mean(known, lambda entry: entry["mode_share"]["value"]),
        "collision_probability": _collision_probability(known),
    }


def _collision_probability(verdicts: Sequence[_CaseVerdict]) -> dict[str, Json]:
    """The mean chance that two answers to a case are of one kind, with its interval for these cases."""
    chances = [each.entry["collision_probability"] for each in verdicts]
    bounds = mean_interval(
        [(each["value"], each["low"], each["high"]) for each in chances], [e.case.weight for e in verdicts]
    )
    return {
        "value": _mean(verdicts, lambda entry: entry["collision_probability"]["value"]),
        "low": bounds[0] if bounds else None,
        "high": bounds[1] if bounds else None,
    }


def _mean(verdicts: Sequence[_CaseVerdict], value: Callable[[Mapping[str, Json]], float]) -> float | None:
    """The mean by weight, summed exactly, so that the order of cases does not change the last digit."""
    whole = math.fsum(each.case.weight for each in verdicts)
    return math.fsum(each.case.weight * value(each.entry) for each in verdicts) / whole if whole else None


# Diversity as Markdown.

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
_JUDGE_NOTE = (
    "Of pairs, a judge: the share of pairs of answers that say the same. Collapsed where it surely is over "
    "collapse_share, diverse where it surely is under its square; each by itself is wrong in 2.5 % at most, if the "
    "judge is right. Pairs without a verdict count against either."
)


def diversity_markdown(results: Mapping[str, Json]) -> str:
    """Kinds of answers, and whether they collapsed; nothing if no case counts them."""
    diversity = results.get("diversity")
    if diversity is None:
        return ""
    entries = sorted(diversity["by_case"], key=_by_mode_share)
    judged = any("by_judge" in entry for entry in entries)
    # One more column if a judge compares answers.
    columns, more_cells = ((*_COLUMNS, "Of pairs, a judge"), _judge_cell) if judged else (_COLUMNS, _no_cell)
    more = f"The {_CASES} cases nearest to collapse:" if len(entries) > _CASES else ""
    parts = [
        "## Diversity",
        *_verdict_lines(diversity),
        more,
        table(columns, [(*_markdown_row(entry), *more_cells(entry)) for entry in entries[:_CASES]]),
        _JUDGE_NOTE if judged else "",
        _tags(diversity),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts if part)


def _judge_cell(entry: Mapping[str, Json]) -> tuple[str]:
    return (describe_pairs(entry) or NONE,)


def _no_cell(entry: Mapping[str, Json]) -> tuple[()]:
    return ()


def describe_pairs(entry: Mapping[str, Json]) -> str:
    """The verdict of a judge of pairs, and the pairs left out, by reason; empty without such a judge."""
    pairs = entry.get("by_judge")
    if pairs is None:
        return ""
    chance = pairs["collision_probability"]
    text = f"{pairs['verdict'].replace('_', ' ')}: {pairs['same']} of {pairs['pairs']} the same"
    bounds = f", {percent_between(chance['value'], chance['low'], chance['high'])}" if pairs["pairs"] else ""
    left_out = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in pairs["left_out"].items() if count)
    return text + bounds + (f" ({left_out})" if left_out else "")


def _verdict_lines(diversity: Mapping[str, Json]) -> tuple[str, str]:
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in diversity["verdicts"].items() if count)
    named = ", ".join(escape(shorten(item["case"])) for item in diversity["collapsed"][:_NAMED])
    verdict = diversity["verdict"].replace("_", " ") + (f" ({named})" if named else "")
    error = f"family-wise error at most {diversity['alpha']:.1%} ({diversity['correction']})"
    methods = " or ".join(sorted({entry["by"] for entry in diversity["by_case"]}))
    error += f", if answers alike by {methods} are one"
    agreement = diversity["collision_probability"]
    alike = percent_between(agreement["value"], agreement["low"], agreement["high"])
    kinds = f"effective kinds: {decimals(diversity['effective_modes'])}; means over cases with repeats"
    return (
        f"Collapse nowhere: {verdict}, over {diversity['cases']} cases, {error}. Each by itself: {counted}",
        f"Two answers to a case are of one kind: {alike}; {kinds}",
    )


def _tags(diversity: Mapping[str, Json]) -> str:
    rows: list[tuple[object, ...]] = [
        (shorten(each["tag"]), each["cases"], each["verdicts"]["collapsed"], decimals(each["effective_modes"]))
        for each in diversity["by_tag"][:_CASES]
    ]
    return table(("Tag", "Cases", "Collapsed", "Effective kinds"), rows) if rows else ""


def _by_mode_share(entry: Mapping[str, Json]) -> tuple[float, str]:
    return -(entry["mode_share"]["value"] or 0.0), entry["case"]


def describe_chain(entry: Mapping[str, Json]) -> str:
    """A note if texts of the commonest kind are less than half as similar as near ones: a chain connects them."""
    least = entry.get("least_alike")
    return f" (a chain: {least:.2f} alike at its ends)" if least is not None and least < entry["similarity"] / 2 else ""


def _markdown_row(entry: Mapping[str, Json]) -> tuple[object, ...]:
    share, distinct, more = entry["mode_share"], entry["distinct"], entry["runs_to_decide"]
    return (
        shorten(entry["case"]),
        f"{entry['by']} {entry['similarity']:g}" if "similarity" in entry else entry["by"],
        entry["verdict"].replace("_", " ") + describe_chain(entry),
        percent_between(share["value"], share["low"], share["high"]),
        entry["answers"],
        f"{distinct['text']} → {distinct['kinds']}",
        decimals(entry["effective_modes"]["q1"]),
        NONE if more is None else more,
    )
