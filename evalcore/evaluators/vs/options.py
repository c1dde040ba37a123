"""When two recommended options are the same: as written, normalised, or nearly so."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping

from rapidfuzz import process
from rapidfuzz.distance import Indel

from evalq.evalcore.evaluators.vs.opposites import opposed
from evalq.evalcore.folding import folded, is_punctuation

__all__ = ["LONGEST", "fuzzy_counts", "identity", "normalize", "normalized_counts"]

LONGEST = 1000
"""Characters of an option that are kept as they are; a longer one is known by its beginning and a digest."""


def identity(option: str) -> str:
    """What stands for ``option`` in counts: itself, or where it is very long its beginning, length and SHA-256."""
    if len(option) <= LONGEST:
        return option
    # A digest: two long options that begin alike must not be counted as one.
    mark = hashlib.sha256(option.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{option[: LONGEST // 2]}… ({len(option)} characters, sha256 {mark})"


def normalize(option: str) -> str:
    """NFKC, casefolded, white space collapsed; punctuation at the end dropped, but #, * and %, and unless it is all."""
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
    (1 minus the insertions and deletions between them over their joint length) and it is `opposed` to none of that
    kind, or else stands for a new kind; so the order of the runs cannot matter.
    """
    # Each option is compared with every kind, which takes time with their square.
    if len(normal) > most:
        return None
    kinds: Counter[str] = Counter()
    members: dict[str, list[str]] = {}
    for option in sorted(normal):
        scorer = Indel.normalized_similarity
        # All that are alike enough: the one most like it may be its opposite, and the next its kind.
        alike = process.extract(option, list(kinds), scorer=scorer, score_cutoff=similarity, limit=None)
        # And none of its kind: a misspelling is opposed to neither of two opposites, and would make one of both.
        fitting = (kind for kind, _, _ in alike if not any(opposed(option, member) for member in members[kind]))
        kind = next(fitting, option)
        members.setdefault(kind, []).append(option)
        kinds[kind] += normal[option]
    return kinds
