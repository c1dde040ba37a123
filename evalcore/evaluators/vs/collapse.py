"""Mode collapse over repeated runs: the specification's numbers, the robust block, and which options are the same.

The specified number is Pielou's evenness: how evenly the answers are spread over the modes that occurred. It cannot
tell two even modes from ten, and is unstable if one mode dominates. So the block beside it estimates the share of the
most common answer, with an interval.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from rapidfuzz import process
from rapidfuzz.distance import Indel

from evalq.evalcore.evaluators.vs.params import CollapseRule
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.statistics.diversity import modes_block, share_of, share_rule
from evalq.evalcore.statistics.exact import shannon_bits
from evalq.evalcore.statistics.mode_share import FIXED_RUNS
from evalq.evalcore.words import NEGATIONS, OPPOSING, PREFIXES, denials, folded, is_punctuation
from evalq.evalcore.words import opposites as opposites_of


@dataclass(frozen=True, kw_only=True)
class ModeCollapseReport:
    """The specification's five attributes, over runs with an option; ``errors`` counts the other runs.

    Without any option, ``diversity_score`` and ``mode_collapse_detected`` are None.
    """

    unique_recommendations: int
    total_runs: int
    diversity_score: float | None
    mode_collapse_detected: bool | None
    most_common: list[tuple[Any, int]]
    errors: int


def detect_mode_collapse(outputs: Sequence[dict[str, Any]]) -> ModeCollapseReport:
    """Whether repeated runs of one input recommend the same thing, from their ``vs_metadata.final_selection.option``.

        chosen = [{"vs_metadata": {"final_selection": {"option": name}}} for name in "AAAAAAAAAB"]
        detect_mode_collapse(chosen).diversity_score       # 0.469: the entropy of 9 to 1, over log2(2)

    ``diversity_score`` is the entropy of the options divided by the logarithm of their number, 0 for a single one;
    below 0.3 a collapse is detected. Options are compared as they are written. A run without an option (or with one
    that cannot be counted, such as a list) is an error: excluded and counted. `robust_block` says how sure one can be.
    """
    options = [option for option in map(_recommended, outputs) if option is not None]
    return specified(Counter(options), CollapseRule(), errors=len(outputs) - len(options))


def _recommended(output: object) -> Hashable | None:
    for key in ("vs_metadata", "final_selection", "option"):
        output = output.get(key) if isinstance(output, dict) else None
    # Any hashable value counts, as in the seed's code.
    try:
        hash(output)
    except TypeError:
        return None
    return output


def specified(counts: Mapping[Any, int], rule: CollapseRule, errors: int = 0) -> ModeCollapseReport:
    """The report for counts of options in the order of first occurrence, which breaks ties among the most common."""
    if not counts:
        return ModeCollapseReport(
            unique_recommendations=0,
            total_runs=0,
            diversity_score=None,
            mode_collapse_detected=None,
            most_common=[],
            errors=errors,
        )
    # For even counts the quotient may exceed 1 by the last bit of a float.
    evenness = min(1.0, shannon_bits(counts.values()) / math.log2(len(counts))) if len(counts) > 1 else 0.0
    return ModeCollapseReport(
        unique_recommendations=len(counts),
        total_runs=sum(counts.values()),
        diversity_score=evenness,
        mode_collapse_detected=evenness < rule.detected_below,
        # Among equals nlargest keeps the order of first occurrence, by which the specification breaks ties.
        most_common=heapq.nlargest(rule.most_common, counts.items(), key=lambda item: item[1]),
        errors=errors,
    )


def robust_block(options: Mapping[str, int], rule: CollapseRule, planned: int = 0) -> dict[str, Json]:
    """``distinct`` to ``fuzzy`` of a mode_collapse entry; all but ``distinct`` and ``fuzzy`` of normalised options.

    If the case could stop early, with at most ``planned`` calls, share, verdict and runs to decide allow for that.
    """
    normal = normalized_counts(options)
    near = fuzzy_counts(normal, rule.fuzzy_similarity, rule.fuzzy_most)
    return {
        "distinct": {"exact": len(options), "normalized": len(normal), "fuzzy": None if near is None else len(near)},
        # By normalised options: "Use A." and "use a" are one recommendation (SPEC, section 1).
        **modes_block(normal.values(), rule.collapse_share, planned),
        "fuzzy": _fuzzy(near, rule, planned),
    }


def _fuzzy(near: Mapping[str, int] | None, rule: CollapseRule, planned: int) -> dict[str, Json]:
    """Share and verdict with near-duplicates as one option; None if there are too many options to compare."""
    if not near:
        return {"mode_share": share_of(FIXED_RUNS, 0, 0), "verdict": None if near is None else "no_data"}
    m, n, judged = max(near.values()), sum(near.values()), share_rule(planned)
    return {"mode_share": share_of(judged, m, n), "verdict": judged.verdict(m, n, rule.collapse_share)}


# When two recommended options are the same: as written, normalised, or nearly so

LONGEST = 1000
"""A longer option is shortened to its beginning and a digest."""


def identity(option: str) -> str:
    """The key of ``option`` in counts: itself, or for a very long one its beginning, length and SHA-256."""
    if len(option) <= LONGEST:
        return option
    # With a digest, because two long options with the same beginning are not the same.
    mark = hashlib.sha256(option.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{option[: LONGEST // 2]}… ({len(option)} characters, sha256 {mark})"


def normalize(option: str) -> str:
    """NFKC, casefolded, white space collapsed; without punctuation at the end, except #, * and %, or if it is all."""
    text = folded(option)
    end = len(text)
    while end and (text[end - 1] == " " or _ends_sentences(text[end - 1])):
        end -= 1
    return text[:end] or text


def _ends_sentences(character: str) -> bool:
    """C# is not C, and 5 % is not 5."""
    return character not in "#*%" and is_punctuation(character)


def normalized_counts(exact: Mapping[str, int]) -> Counter[str]:
    """The counts of ``exact``, added up by normalised option."""
    counts: Counter[str] = Counter()
    for option, count in exact.items():
        counts[normalize(option)] += count
    return counts


def fuzzy_counts(normal: Mapping[str, int], similarity: float, most: int) -> Counter[str] | None:
    """The counts of ``normal``, added up by kind, where near-duplicates are one; None for more than ``most`` options.

    In sorted order each option joins the earlier kind that it is most like, if they are at least ``similarity`` alike
    (1 minus the insertions and deletions between them over their joint length) and it is `_opposed` to none of that
    kind, or else stands for a new kind; so the order of the runs cannot matter.
    """
    # Each option is compared with each kind, which takes quadratic time.
    if len(normal) > most:
        return None
    kinds: Counter[str] = Counter()
    members: dict[str, list[str]] = {}
    for option in sorted(normal):
        scorer = Indel.normalized_similarity
        # All similar kinds, because the most similar one may be its opposite.
        alike = process.extract(option, list(kinds), scorer=scorer, score_cutoff=similarity, limit=None)
        # Opposed to no member: a misspelling is similar to both of two opposites, and would join them.
        fitting = (kind for kind, _, _ in alike if not any(_opposed(option, member) for member in members[kind]))
        kind = next(fitting, option)
        members.setdefault(kind, []).append(option)
        kinds[kind] += normal[option]
    return kinds


_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")
_ROMAN = re.compile(r"m{0,3}(?:cm|cd|d?c{0,3})(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
# Non-linear and nonlinear are the same word, so the hyphen is dropped.
_HYPHEN = re.compile(rf"\b({'|'.join([*PREFIXES, *(prefix for pair in OPPOSING for prefix in pair)])})-(?=\w)")


class _Facts(NamedTuple):
    """An option's digits and Roman numerals in order, its negating words, all other words, and what opposes those."""

    digits: list[str]
    romans: list[str]
    negations: Counter[str]
    words: Counter[str]
    opposites: frozenset[str]


def _opposed(one: str, other: str) -> bool:
    """Whether two normalised options differ in a digit, a Roman numeral, a negation or a word's opposing prefix.

    Such options are no near-duplicates, however alike in spelling: Phase II and III, supervised and unsupervised.
    """
    mine, its = _facts(one), _facts(other)
    if mine[:3] != its[:3]:
        return True
    # First, because it takes a tenth of the time.
    if mine.opposites.isdisjoint(its.words):
        return False
    words, others = mine.words - its.words, its.words - mine.words
    return any(not others.keys().isdisjoint(opposites_of(word)) for word in words)


@lru_cache(maxsize=4096)
def _facts(option: str) -> _Facts:
    words = _WORD.findall(_HYPHEN.sub(r"\1", option))
    # By this, a word such as mix is a numeral, too. That only keeps options apart, which is the safer error.
    romans = [word for word in words if _ROMAN.fullmatch(word)]
    # With those that other scripts join to a word.
    negations = Counter(word for word in words if word in NEGATIONS) + Counter({"": denials(option, words)})
    others = Counter(word for word in words if word not in NEGATIONS)
    opposites = frozenset(opposite for word in others for opposite in opposites_of(word))
    return _Facts(_DIGIT.findall(option), romans, negations, others, opposites)
