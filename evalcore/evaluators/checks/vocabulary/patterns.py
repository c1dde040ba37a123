"""Patterns of checks, in RE2's syntax: a user's own pattern takes linear time over any answer."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck

__all__ = ["compiled"]


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, ignore_case: bool = False, dotall: bool = False) -> Any:
    """The pattern over UTF-8 bytes. Raises BadCheck for what is none to RE2."""
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.dot_nl = dotall
    try:
        return re2.compile(pattern.encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        said = error.args[0]
        raise BadCheck(f"no regular expression: {said.decode() if isinstance(said, bytes) else said}") from None
