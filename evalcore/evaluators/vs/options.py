"""When two recommended options are the same: as written, normalised, or nearly so."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping

from rapidfuzz import process
from rapidfuzz.distance import Indel

__all__ = ["LONGEST", "fuzzy_distinct", "identity", "normalize", "normalized_counts"]

LONGEST = 1000
"""Characters of an option that are kept as they are; a longer one is known by its beginning and a digest."""


def identity(option: str) -> str:
    """What stands for ``option`` in counts: itself, or where it is very long its beginning, length and SHA-256."""
    if len(option) <= LONGEST:
        return option
    mark = hashlib.sha256(option.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{option[: LONGEST // 2]}… ({len(option)} characters, sha256 {mark})"


def normalize(option: str) -> str:
    """NFKC, casefolded, white space collapsed, punctuation at the end dropped (unless nothing else is left)."""
    text = option if option.isascii() else unicodedata.normalize("NFKC", option)
    text = text.casefold()
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    text = " ".join(text.split())
    end = len(text)
    while end and (text[end - 1] == " " or unicodedata.category(text[end - 1]).startswith("P")):
        end -= 1
    return text[:end] or text


def normalized_counts(exact: Mapping[str, int]) -> Counter[str]:
    """The counts of ``exact``, added up by normalised option."""
    counts: Counter[str] = Counter()
    for option, count in exact.items():
        counts[normalize(option)] += count
    return counts


def fuzzy_distinct(options: Collection[str], similarity: float, most: int) -> int | None:
    """How many options are left when near-duplicates count once; None for more than ``most`` options.

    In sorted order each option joins an earlier one that is at least ``similarity`` alike (1 minus the insertions and
    deletions between them over their joint length), or else stands for a new kind; so their order cannot matter.
    """
    if len(options) > most:
        return None
    kinds: list[str] = []
    for option in sorted(options):
        alike = process.extractOne(option, kinds, scorer=Indel.normalized_similarity, score_cutoff=similarity)
        if alike is None:
            kinds.append(option)
    return len(kinds)
