"""Counts in words."""

from __future__ import annotations

import pytest

from evalq.evalcore.views.markdown import plural, printed, printed_line


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


def test_what_is_printed_is_no_command_to_a_build_service() -> None:
    """GitHub obeys lines that begin with ::, also after spaces; older agents obey ##[ anywhere in a line."""
    text = "a ::b\n::error::x\n \t::set-output name=a::b\n##[error]x ##vso[task]y\n## Heading\n\x1b[31m"
    shown = printed(text)
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())
    assert ("##[" in shown, "##vso[" in shown, "\x1b" in shown) == (False, False, False)
    assert shown.startswith("a ::b\n")
    assert "\n## Heading\n" in shown
    assert len(printed_line(text).splitlines()) == 1
