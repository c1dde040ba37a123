"""Patterns that have no linear-time search, or mean nothing, are refused with the reason."""

from __future__ import annotations

import pytest

from evalq.evalcore.scan import Pattern, PatternRefused, Scanner, require_searchable

REFUSED = {
    "(?=a)b": "look-ahead",
    "(?<!a)b": "negative look",
    r"(a)\1": "reference back",
    r"(a)?(?(1)b|c)": "conditional group",
    "(?>a+)b": "atomic group",
    "a++b": "possessive",
    "(?:a*)*": "endless repetition of what can be empty",
    "(?:a|)+": "endless repetition of what can be empty",
    "a$": "look ahead for a last newline",
    "(?a:x)": "ASCII flag",
    "(?a)x": "ASCII flag",
    "a(?i)b": "not a regular expression",
    "(": "not a regular expression",
    "[b-a]": "not a regular expression",
    "a{99999999999999999999}": "repetition count",
    "(" * 2000 + ")" * 2000: "nested too deeply",
    "a{2000}": "too much to search for",
    "(?:abcdefghijklmno[pq]){900}": "steps, where 10000 are allowed",
    "(?:(?:a{1,99}b){1,99}c){1,99}": "too much to search for",
    "".join(map(chr, range(0xAC00, 0xAC00 + 300))): "kinds of characters",
    r"\b" + "".join(map(chr, range(0xAC00, 0xAC00 + 70))): "kinds of characters",
}

NOT_COUNTED = {
    "a*": "match nothing",
    r"\b": "match nothing",
    "a+b": "without an upper bound",
    "a.*z": "without an upper bound",
    "a.*?z|a": "without an upper bound",
    "a.*?b.*?c": "without an upper bound",
    "(?:ab)+?c": "without an upper bound",
    "a{1,400}b{1,400}": "bounded length",
}


@pytest.mark.parametrize(("source", "reason"), REFUSED.items(), ids=range(len(REFUSED)))
def test_it_is_refused(source: str, reason: str) -> None:
    """Every kind of pattern without a linear search, and what is no pattern."""
    with pytest.raises(PatternRefused, match=reason):
        require_searchable(Pattern(source))


@pytest.mark.parametrize(("source", "reason"), NOT_COUNTED.items())
def test_it_is_found_but_not_counted(source: str, reason: str) -> None:
    """A single search is linear for these, a search behind every match need not be."""
    require_searchable(Pattern(source))
    with pytest.raises(PatternRefused, match=reason):
        require_searchable(Pattern(source, counted=True))


@pytest.mark.parametrize("source", ["a.*?z", r"\ba[^b]*?z\b", "(?s)(?:a|b).*?z", "x{1,500}", r"\b(?:Edit|Write)\b"])
def test_it_is_counted(source: str) -> None:
    """A greatest length, or one lazy repetition between parts that have one."""
    require_searchable(Pattern(source, counted=True))


def test_one_bad_pattern_among_many_is_the_one_refused() -> None:
    """The reason is that of the bad one, although all were compiled together first."""
    with pytest.raises(PatternRefused, match="look-ahead"):
        Scanner([Pattern("a"), Pattern("b(?=c)"), Pattern("d")])


def test_what_the_text_says_cannot_make_the_search_explode() -> None:
    """A text that sends backtracking engines off for ever is answered at once."""
    scanner = Scanner([Pattern("(?:a|aa)+b"), Pattern("(?:a+)+$".replace("$", r"\Z"))])
    assert scanner.firsts("a" * 200_000 + "c") == [None, None]
