"""Checks of a team's own: found by entry point, held to their promise, part of the code version."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from evalq.checks import Answer, Finding, Kind, Made
from evalq.evalcore import version
from evalq.evalcore.contract import registry
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks import compiling
from evalq.evalcore.evaluators.checks.compiling import Verdict, compile_check
from evalq.evalcore.evaluators.checks.vocabulary import known_kinds


def polite(answer: Answer, value: Any) -> bool:
    """Whether it says please.

    More of this is not shown.
    """
    return "please" in answer.folded


def share(answer: Answer, value: Any) -> float:
    """How much of it is the value."""
    if answer.text == "trip":
        raise KeyError("over this")
    return float(answer.text) if answer.text.startswith("-") else answer.text.count(value) / len(answer.text)


LOUD = Kind(
    name="loud",
    summary="Upper case.",
    value=str,
    make=lambda value, options: Made(value, lambda answer: Finding(float(answer.text.isupper()), answer.text)),
    example={"loud": "x"},
)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What packages register in this test, to be filled before it is looked at."""
    module = ModuleType("team_checks")
    vars(module).update(polite=polite, share=share, LOUD=LOUD, nothing=7)
    monkeypatch.setitem(sys.modules, "team_checks", module)
    points: list[EntryPoint] = []
    found = importlib.metadata.entry_points
    monkeypatch.setattr(
        registry, "entry_points", lambda group: points if group == registry.CHECKS else found(group=group)
    )
    known_kinds.cache_clear()
    compiling._options_of.cache_clear()
    yield points
    known_kinds.cache_clear()
    compiling._options_of.cache_clear()


def point(name: str, value: str) -> EntryPoint:
    """An entry point of a package."""
    return EntryPoint(name, f"team_checks:{value}", registry.CHECKS)


def judged(check: dict[str, Any], output: str) -> Verdict:
    """What becomes of ``check`` on an answer."""
    return compile_check(check).judge(Answer(output))


def test_functions_and_kinds_are_checks_like_any(registered: list[EntryPoint]) -> None:
    """They are negated, weighted and composed, and have a threshold."""
    registered += [point("polite", "polite"), point("share", "share"), point("loud", "LOUD")]
    assert judged({"polite": True}, "Please sit").passed is True
    assert judged({"not-polite": True, "weight": 2}, "Please sit").passed is False
    assert judged({"share": "a"}, "aab").score == pytest.approx(2 / 3)
    assert judged({"share": "a", "threshold": 0.7}, "aab").passed is False
    assert judged({"any": [{"loud": "x"}, {"polite": None}]}, "SIT").passed is True
    assert known_kinds()["polite"].summary == "Whether it says please."


def test_what_they_trip_over_is_an_error_of_that_output(registered: list[EntryPoint]) -> None:
    """Neither passed nor failed, and no end of the run; a score outside its bounds is none."""
    registered.append(point("share", "share"))
    tripped = judged({"not-share": "a"}, "trip")
    assert (tripped.passed, tripped.error) == (None, "KeyError: 'over this'")
    for output in ("", "-1", "-nan", "-inf"):
        assert judged({"share": "a"}, output).passed is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("contains", "polite", "needs another name"),
        ("not-nice", "polite", "needs another name"),
        ("weight", "polite", "needs another name"),
        ("Nice", "polite", "needs another name"),
        ("nice", "nothing", "neither a function nor a Kind"),
        ("nice", "LOUD", "neither a function nor a Kind of that name"),
        ("nice", "away", "cannot be loaded"),
    ],
)
def test_what_cannot_be_a_check_is_said(registered: list[EntryPoint], name: str, value: str, says: str) -> None:
    """Before anything is evaluated."""
    registered.append(point(name, value))
    with pytest.raises(ConfigError, match=says):
        known_kinds()


def test_two_of_one_name_are_refused(registered: list[EntryPoint]) -> None:
    """Which of them is meant nobody could say."""
    registered += [point("nice", "polite"), point("nice", "share")]
    with pytest.raises(ConfigError, match="two packages"):
        known_kinds()


def test_they_are_part_of_the_code_version(registered: list[EntryPoint]) -> None:
    """A worker without a check, or with another, never sees a message of one with it."""
    before = dict(version.code_parts.__wrapped__())
    registered.append(point("polite", "polite"))
    after = dict(version.code_parts.__wrapped__())
    assert after.keys() - before.keys() == {"check polite"}


def test_code_never_comes_with_a_case() -> None:
    """A name that nothing registers is unknown, however much it looks like a module."""
    for name in ("os:system", "team_checks:polite", "python"):
        with pytest.raises(Exception, match="there is no check"):
            compile_check({name: "true"})
