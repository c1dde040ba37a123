"""Every pattern the engine takes is found, and counted, where Python's `re` finds it."""

from __future__ import annotations

import contextlib
import itertools
import re
from functools import cache

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.scan import AnyOf, Pattern, PatternRefused, Scanner
from evalq.evalcore.scan.matchers import SWEEP_FROM
from tests.unit.scan.regexes import SIGNS, patterns, texts

FLAGS = [re.NOFLAG, re.IGNORECASE, re.DOTALL, re.IGNORECASE | re.DOTALL]


def _pattern(source: str, flags: re.RegexFlag, *, counted: bool = False) -> Pattern:
    return Pattern(source, bool(flags & re.IGNORECASE), "unicode", bool(flags & re.DOTALL), counted)


def _scanner(*given_: Pattern) -> Scanner:
    try:
        return Scanner(given_)
    except PatternRefused:
        assume(False)
        raise


@settings(max_examples=150, deadline=None)
@given(source=patterns, flags=st.sampled_from(FLAGS), text=texts)
@example(source=r"\bk\b", flags=re.IGNORECASE, text="를 \u212a를\u212a \u212a")
@example(source="(?:a|ab)(?:c|bcd)", flags=re.NOFLAG, text="abcd")
@example(source="", flags=re.NOFLAG, text="x")
def test_the_first_match_is_that_of_re(source: str, flags: re.RegexFlag, text: str) -> None:
    r"""Same span for any pattern, flags and text (but `\B` in an empty text, on which versions of Python differ)."""
    assume(text or r"\B" not in source)
    scanner = _scanner(_pattern(source, flags))
    match = re.search(source, text, flags)
    assert scanner.firsts(text) == [match.span() if match else None]
    assert scanner.scan(text).first(0) == (match.span() if match else None)
    assert scanner.scan(text).found(0) == bool(match)


@settings(max_examples=150, deadline=None)
@given(source=patterns, flags=st.sampled_from(FLAGS), text=texts)
@example(source=r"\b(?:ab|a)\b", flags=re.IGNORECASE, text="ab AB a ab를 ab_ abab\nab")
@example(source=r"(?:a|b).*?1", flags=re.DOTALL, text="a b 1 1 a\n1")
@example(source=r"(?:a|b).*?1", flags=re.NOFLAG, text="a b 1 1 a\n1")
@example(source="aa", flags=re.NOFLAG, text="aaaaa")
def test_the_count_is_that_of_finditer(source: str, flags: re.RegexFlag, text: str) -> None:
    """As many matches as re.finditer gives, for every pattern that may be counted."""
    scanner = _scanner(_pattern(source, flags, counted=True))
    found = sum(1 for _ in re.finditer(source, text, flags))
    scan = scanner.scan(text)
    assert scan.count(0) == found
    assert scan.found(0) == (found > 0)
    match = re.search(source, text, flags)
    assert scan.first(0) == (match.span() if match else None)


@settings(max_examples=60, deadline=None)
@given(sources=st.lists(patterns, min_size=2, max_size=8), text=texts)
def test_patterns_searched_together_answer_as_if_alone(sources: list[str], text: str) -> None:
    """Sharing an alphabet with others changes nothing for any of them."""
    taken = []
    for source in sources:
        try:
            Scanner([Pattern(source)])
            taken.append(source)
        except PatternRefused:
            continue
    together = Scanner([Pattern(source) for source in taken])
    assert together.firsts(text) == [Scanner([Pattern(source)]).firsts(text)[0] for source in taken]


def test_whole_words_end_at_letters_of_any_script() -> None:
    """A word with a Korean particle behind it is another word; an underscore or a digit makes another one too."""
    scan = Scanner([Pattern(r"\bEdit\b", True, counted=True)]).scan("Edit를 Edit_ edit 2Edit EDIT. éditEdit")
    assert scan.count(0) == 2
    assert scan.first(0) == (12, 16)


@pytest.mark.parametrize(("folding", "found"), [("ascii", None), ("unicode", (0, 8))])
def test_ascii_folding_leaves_other_scripts_alone(folding: str, found: tuple[int, int] | None) -> None:
    """The Kelvin sign and the long s are letters of their own unless all of Unicode folds."""
    pattern = Pattern("i think.", True, "unicode" if folding == "unicode" else "ascii")
    assert Scanner([pattern]).firsts("I thin\u212aſ") == [found]
    assert Scanner([pattern]).firsts("I THINKs") == [(0, 8)]


@cache
def _every() -> str:
    return "".join(map(chr, range(0x110000)))


@pytest.mark.parametrize("letter", "aiksz")
def test_unicode_folding_is_that_of_re_for_every_character(letter: str) -> None:
    """All 1,114,112 characters: those equal to the letter under re.IGNORECASE, and no others."""
    scan = Scanner([Pattern(letter, True, counted=True)]).scan(_every())
    assert scan.count(0) == len(re.findall(letter, _every(), re.IGNORECASE))


@pytest.mark.parametrize("source", [r"\w", r"\d", r"\s", r"[^\W\d]"])
def test_classes_are_those_of_re_for_every_character(source: str) -> None:
    """All 1,114,112 characters, surrogates included."""
    scan = Scanner([Pattern(source, counted=True)]).scan(_every())
    assert scan.count(0) == len(re.findall(source, _every()))


def test_offsets_are_characters_of_the_text_as_given() -> None:
    """Wide characters before a match count as one each, in short texts and in long ones."""
    scanner = Scanner([Pattern("usually", True, "ascii"), Pattern("u.ually")])
    for text in ("한글 😀 usually", "한글 😀 " * SWEEP_FROM + "usually"):
        at = len(text) - 7
        assert scanner.firsts(text) == [(at, at + 7), (at, at + 7)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=6), st.text("abc", max_size=60))
def test_a_long_text_is_swept_with_the_same_result(words: list[str], text: str) -> None:
    """One pass for all strings finds what looking for each alone finds, wherever the hits lie."""
    scanner = Scanner([Pattern("|".join(words)), *map(Pattern, words)])
    long = "c" * SWEEP_FROM + text
    expected = [re.search(source, long) for source in ["|".join(words), *words]]
    assert scanner.firsts(long) == [match.span() if match else None for match in expected]


def test_a_long_text_that_is_mostly_plain_is_one_text() -> None:
    """Pieces in ASCII alone and pieces with other scripts are encoded apart, and searched as one."""
    text = "a" * 70_000 + "가" + "a" * 70_000 + "b"
    assert Scanner([Pattern("가a+b")]).firsts(text) == [(70_000, 140_002)]


def test_a_sweep_keeps_few_automata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that end in every combination of signals make one automaton each, and only the last few are kept."""
    monkeypatch.setattr("evalq.evalcore.scan.matchers.CACHED_UNIONS", 3)
    sources = ["one", "two", "three", "four", "five"]
    scanner = Scanner([Pattern(source) for source in sources])
    for order in itertools.permutations(sources, 3):
        text = "-" * SWEEP_FROM + " ".join(order)
        expected = [re.search(source, text) for source in sources]
        assert scanner.firsts(text) == [match.span() if match else None for match in expected]


def test_a_class_without_members_matches_nothing() -> None:
    """Neither in the middle of a pattern nor alone; an alternative to it still does."""
    assert Scanner([Pattern(r"[^\w\W]|b"), Pattern(r"a[^\w\W]")]).firsts("ab") == [(1, 2), None]


def test_lines_have_their_ends() -> None:
    """With (?m), the ends of lines are those of re."""
    text = "ab\ncab\n\nb"
    for source in ("(?m)b$", "(?m)^b$", "(?m)^$", "(?m)^c"):
        match = re.search(source, text)
        assert Scanner([Pattern(source)]).firsts(text) == [match.span() if match else None]


def test_lists_with_many_letters_are_split_into_groups() -> None:
    """More distinct characters than there are bytes, in several patterns, with word boundaries and without."""
    hangul = [chr(code) for code in range(0xAC00, 0xAC00 + 600)]
    sources = ["".join(hangul[at : at + 50]) for at in range(0, 600, 50)]
    sources += [rf"\b{source}\b" for source in sources]
    text = " ".join(sources[:12])
    scanner = Scanner([Pattern(source) for source in sources])
    starts = [51 * (index % 12) for index in range(24)]
    assert scanner.firsts(text) == [(start, start + 50) for start in starts]


def test_a_pattern_not_meant_to_be_counted_is_not() -> None:
    """Asking for the count of such a pattern is a mistake that shows."""
    with pytest.raises(KeyError):
        Scanner([Pattern("a")]).scan("aaa").count(0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(patterns, st.sampled_from(FLAGS)), min_size=2, max_size=8),
    st.lists(st.sampled_from([sign for sign in SIGNS if sign.isascii()]), max_size=40).map("".join),
)
@example([(r"\bab\b", re.IGNORECASE), (r"\s", re.NOFLAG), ("b*", re.NOFLAG)], "x AB\x1c")
@example([(r"a.*?b", re.DOTALL), (r"a.*?b", re.NOFLAG), (r"b\Z", re.NOFLAG)], "a\nb")
def test_ascii_is_looked_over_once_for_all(given_: list[tuple[str, re.RegexFlag]], text: str) -> None:
    """Each of several patterns is found, not found and counted in ASCII as `re` does it."""
    taken = []
    for source, flags in given_:
        with contextlib.suppress(PatternRefused):
            Scanner([_pattern(source, flags, counted=True)])
            taken.append((source, flags))
    assume(len(taken) > 1)
    assume(text or not any(r"\B" in source for source, _ in taken))
    scanner = Scanner([_pattern(source, flags, counted=True) for source, flags in taken])
    scan, matches = scanner.scan(text), [re.search(source, text, flags) for source, flags in taken]
    assert scanner.firsts(text) == [match.span() if match else None for match in matches]
    for index, (source, flags) in enumerate(taken):
        assert scan.found(index) is bool(matches[index])
        assert scan.first(index) == (matches[index].span() if matches[index] else None)  # type: ignore[union-attr]  # asked
        assert scan.count(index) == sum(1 for _ in re.finditer(source, text, flags))


def test_an_automaton_without_memory_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the one pass fails, each pattern is looked for by itself; it never passes for absent."""
    sources = ["one", "two", r"\bthree\b"]
    scanner = Scanner([Pattern(source, counted=True) for source in sources])
    assert scanner.scan("three").found(2)
    assert scanner._presence is not None
    monkeypatch.setattr(scanner._presence, "_match", lambda data: [])
    scan = scanner.scan("one three three")
    assert [scan.found(index) for index in range(3)] == [True, False, True]
    assert [scan.count(index) for index in range(3)] == [1, 0, 2]
    assert scanner.firsts("one three three") == [(0, 3), None, (4, 9)]


def test_a_long_pattern_is_not_looked_for_together_with_others() -> None:
    """It would slow the others down; it is found by itself."""
    scanner = Scanner([Pattern("a{1,900}b"), Pattern("c"), Pattern("d")])
    assert scanner.scan("ac").found(1)
    assert scanner._presence is not None
    assert scanner._presence.known == {1, 2}
    assert [scanner.scan("aab c").found(index) for index in range(3)] == [True, True, False]
    assert scanner.firsts("aab c") == [(0, 3), (4, 5), None]


@pytest.mark.parametrize("where", ["start", "middle", "end", "nowhere"])
def test_a_long_plain_text_is_swept_as_it_is(where: str) -> None:
    """Without case in ASCII; a string with letters beyond ASCII is in no such text, and no hindrance to the others."""
    parts = {"start": ("", "-" * SWEEP_FROM), "middle": ("-" * SWEEP_FROM,) * 2, "end": ("-" * SWEEP_FROM, "")}
    before, behind = parts.get(where, ("-" * SWEEP_FROM, ""))
    text = before + ("ProBably TODO" if where != "nowhere" else "") + behind
    scanner = Scanner([Pattern("probably|아마", True, "ascii"), Pattern("TODO"), Pattern("todo"), Pattern("아마")])
    at = len(before)
    found = [None] * 4 if where == "nowhere" else [(at, at + 8), (at + 9, at + 13), None, None]
    assert scanner.firsts(text) == found
    assert Scanner([Pattern("아마"), Pattern("다나")]).firsts(text) == [None, None]


@settings(max_examples=300)
@given(st.lists(patterns, min_size=1, max_size=3), texts, st.sampled_from([*FLAGS, re.MULTILINE]))
@example([r"^\s*a", r"a$"], "a\n\n a\na", re.MULTILINE)
def test_all_matches_of_any_are_those_of_finditer(sources: list[str], text: str, flags: re.RegexFlag) -> None:
    """Each search begins behind the match before, and still sees what stands there."""
    try:
        places = list(AnyOf(sources, flags).spans(text))
    except PatternRefused:
        assume(False)
        raise
    together = re.compile("|".join(f"(?:{source})" for source in sources), flags)
    assert places == [match.span() for match in together.finditer(text)]
