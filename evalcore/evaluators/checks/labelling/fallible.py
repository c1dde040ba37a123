"""Which checks may be wrong, and so which cases depend on somebody's judgement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from evalq.evalcore.evaluators.checks.compiling import COMPOSED
from evalq.evalcore.evaluators.checks.params import Case, ChecksParams
from evalq.evalcore.evaluators.checks.vocabulary.registry import known_kinds

__all__ = ["any_judged", "fallible", "judged_of"]

_NOT = "not-"


def fallible(written: Mapping[str, Any]) -> bool:
    """Whether a check, as a file spells it, may be wrong: a composed one where any of its parts may."""
    for name, value in written.items():
        plain = name.removeprefix(_NOT)
        if plain in COMPOSED:
            return any(fallible({part: True} if isinstance(part, str) else part) for part in value)
        kind = known_kinds().get(plain)
        if kind is not None:
            return kind.fallible
    return False


def judged_of(case: Case) -> tuple[bool, ...]:
    """Of each check of the case whether it may be wrong and decides: one of weight 0 is only shown."""
    return tuple(bool(check.get("weight", 1)) and fallible(check) for check in case.checks)


@lru_cache(maxsize=16)
def any_judged(params: ChecksParams) -> bool:
    """Whether any selected case depends on a fallible check."""
    return any(any(judged_of(case)) for case in params.selected())
