"""Checks that an import has made, held to the vocabulary: what this version refuses is no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from evalq.evalcore.evaluators.checks.compiling import compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck
from evalq.producer.importing.patterns import NoCounterpart

__all__ = ["accepted"]


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
