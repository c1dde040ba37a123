"""Counts in words."""

from __future__ import annotations

import pytest

from evalq.evalcore.views.markdown import plural


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (1, ("case",), "1 case"),
        (0, ("case",), "0 cases"),
        (2000, ("case",), "2,000 cases"),
        (1, ("case is", "cases are"), "1 case is"),
        (2, ("process that calls", "processes that call"), "2 processes that call"),
    ],
)
def test_a_count_has_its_singular_and_plural(count: int, words: tuple[str, ...], said: str) -> None:
    """One alone is singular."""
    assert plural(count, *words) == said
