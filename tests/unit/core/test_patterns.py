"""Patterns of users that Python warns of: no warning is shown, wherever such a pattern may stand, and none is lost."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from evalq.evalcore.evaluators.planagent.params import PlanParams
from evalq.evalcore.evaluators.planagent.score import ErrorTexts
from evalq.evalcore.evaluators.selfcheck.suspicion import SuspicionRules
from evalq.evalcore.scan.scanner import Pattern, Scanner
from evalq.evalcore.words import compiled


def _masks(pattern: str) -> object:
    params = PlanParams.model_validate({"error_masks": ({"pattern": pattern, "replacement": "#"},)}, strict=True)
    return ErrorTexts.of(params)


@pytest.mark.parametrize(
    "taken",
    [
        compiled,
        lambda pattern: Scanner([Pattern(pattern)]),
        lambda pattern: SuspicionRules.model_validate({"machine": (pattern,)}, strict=True),
        _masks,
    ],
    ids=["compiled", "scanner", "suspicion", "planagent"],
)
@pytest.mark.parametrize("pattern", ["[[ab]+", "[a&&b]", "[a||b]", "[a~~b]"])
def test_what_a_later_python_may_read_otherwise_is_taken_without_a_word_of_it(
    taken: Callable[[str], object], pattern: str
) -> None:
    """A set within a set and the like: the warning names a line of evalq, and neither the pattern nor its file."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken(f"{pattern}{id(taken)}")  # another one for each: Python remembers what it compiled, and warns once


def test_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    """Blocks that overlapped would restore each other's filters, and end with warnings hidden for good."""
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: compiled(f"[[a]{{{number}}}"), range(1, 400)))
    assert list(warnings.filters) == before
