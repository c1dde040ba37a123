"""Checks that an import has made, held to the vocabulary: what this version refuses is no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from evalq.evalcore.evaluators.checks.check import COMPOSED, compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.producer.importing.patterns import NoCounterpart

__all__ = ["accepted", "asks_judge"]

_JUDGED = ("rubric", "factual", "score", "prefer")


def accepted(check: Mapping[str, Any]) -> None:
    """Raise NoCounterpart for what the evaluator would refuse."""
    try:
        reason = _refusal(msgspec.json.encode(check))
    except (msgspec.EncodeError, TypeError, RecursionError, UnicodeEncodeError) as error:
        raise NoCounterpart(f"its value is no plain data: {error}") from None
    if reason:
        raise NoCounterpart(reason)


@lru_cache(maxsize=4096)
def _refusal(written: bytes) -> str:
    try:
        compile_check(msgspec.json.decode(written))
    except (BadCheck, RecursionError) as error:
        return f"evalq refuses it: {str(error) or 'nested too deeply'}"
    return ""


def asks_judge(check: Any) -> bool:
    """Whether a judge decides the check, or a part of it."""
    if not isinstance(check, Mapping):
        return str(check).removeprefix("not-") in _JUDGED
    for key, value in check.items():
        name = str(key).removeprefix("not-")
        if name in _JUDGED or (name in COMPOSED and isinstance(value, list) and any(map(asks_judge, value))):
            return True
    return False
