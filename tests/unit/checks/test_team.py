"""Checks of a team's own: found by entry point, held to their promise, part of the code version."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evalq.checks import CheckedAnswer, Finding, Kind, Made, Uncomputable
from evalq.evalcore import version
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.plugins import name_checks
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.check import CheckVerdict, compile_check, fallible
from evalq.evalcore.evaluators.checks.vocabulary.registry import known_kinds
from evalq.workers.settings import load_settings


def polite(answer: CheckedAnswer, value: Any) -> bool:
    """Whether it says please.

    More of this is not shown.
    """
    return "please" in answer.folded


def share(answer: CheckedAnswer, value: Any) -> float:
    """How much of it is the value."""
    if answer.text == "trip":
        raise KeyError("over this")
    if answer.text == "odd":
        raise OSError("no file \udcff")
    return float(answer.text) if answer.text.startswith("-") else answer.text.count(value) / len(answer.text)


def half(answer: CheckedAnswer, value: Any) -> Finding:
    """Half of a surrogate pair, as names of files may have one."""
    if answer.text == "lacks":
        raise Uncomputable("no file \udcff")
    return Finding(10**400 if answer.text == "huge" else 1.0, "seen \udcff")


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
    vars(module).update(polite=polite, share=share, LOUD=LOUD, nothing=7, half=half)
    monkeypatch.setitem(sys.modules, "team_checks", module)
    points: list[EntryPoint] = []
    found = importlib.metadata.entry_points
    monkeypatch.setattr(
        plugins, "entry_points", lambda group: points if group == plugins.CHECKS else found(group=group)
    )
    known_kinds.cache_clear()
    yield points
    known_kinds.cache_clear()


def point(name: str, value: str) -> EntryPoint:
    """An entry point of a package."""
    return EntryPoint(name, f"team_checks:{value}", plugins.CHECKS)


def judged(check: dict[str, Any], output: str) -> CheckVerdict:
    """What becomes of ``check`` on an answer."""
    return compile_check(check).judge(CheckedAnswer(output))


def test_functions_and_kinds_are_checks_like_any(registered: list[EntryPoint]) -> None:
    """They are negated, weighted and composed, and have a threshold."""
    registered += [point("polite", "polite"), point("share", "share"), point("loud", "LOUD")]
    assert judged({"polite": True}, "Please sit").passed is True
    assert judged({"not-polite": True, "weight": 2}, "Please sit").passed is False
    assert judged({"share": "a"}, "aab").score == pytest.approx(2 / 3)
    assert judged({"share": "a", "threshold": 0.7}, "aab").passed is False
    assert judged({"any": [{"loud": "x"}, {"polite": None}]}, "SIT").passed is True
    assert known_kinds()["polite"].summary == "Whether it says please."


def test_a_kind_that_may_be_wrong_is_treated_as_a_judge(registered: list[EntryPoint]) -> None:
    """It says so itself; what composes it may be wrong, too, and a function by itself is taken at its word."""
    vars(sys.modules["team_checks"])["GUESS"] = Kind(
        name="guess", summary="A classifier.", value=str, make=LOUD.make, example={"guess": "x"}, fallible=True
    )
    registered += [point("guess", "GUESS"), point("polite", "polite")]
    assert fallible({"not-guess": "x"})
    assert fallible({"all": [{"polite": True}, {"guess": "x"}]})
    assert not fallible({"polite": True})


def test_what_they_trip_over_is_an_error_of_that_output(registered: list[EntryPoint]) -> None:
    """Neither passed nor failed, and no end of the run; a score outside its bounds is none."""
    registered.append(point("share", "share"))
    tripped = judged({"not-share": "a"}, "trip")
    assert (tripped.passed, tripped.error) == (None, "KeyError: 'over this'")
    for output in ("", "-1", "-nan", "-inf"):
        assert judged({"share": "a"}, output).passed is None


def test_what_no_record_can_hold_ends_no_run(registered: list[EntryPoint]) -> None:
    """Neither in what a check found, nor in why it found nothing."""
    registered += [point("share", "share"), point("half", "half")]
    assert judged({"half": 1}, "x").found == "seen ?"
    assert judged({"half": 1}, "lacks").error == "no file ?"
    huge = judged({"half": 1}, "huge")
    assert (huge.passed, "is too large" in (huge.error or "")) == (None, True)
    assert judged({"share": "a"}, "odd").error == "OSError: no file ?"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("contains", "polite", "needs another name"),
        ("not-nice", "polite", "needs another name"),
        *((key, "polite", "needs another name") for key in ("weight", "name", "threshold", "at", "count")),
        *((composed, "polite", "needs another name") for composed in ("any", "all", "at-least")),
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


def test_settings_name_functions_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a variable, or in the settings file; they are checks like any, of this process until it reads others."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_checks.py").write_text("def shout(answer, value):\n    return answer.text.isupper()\n")
    monkeypatch.setenv("EVALQ_CHECKS", "shout=own_checks:shout")
    plain = version.code_version()
    assert load_settings().checks == ("shout=own_checks:shout",)
    try:
        assert judged({"shout": True}, "YES").passed is True
        assert judged({"not-shout": True, "weight": 2}, "yes").passed is True
        assert version.code_parts()["check shout"].startswith("own_checks:shout ")
        first = version.code_version()
        assert first != plain
        (tmp_path / "own_checks.py").write_text("def shout(answer, value):\n    return True\n")
        name_checks({})
        load_settings()
        assert version.code_version() not in (plain, first), "other code gives other answers"
        monkeypatch.delenv("EVALQ_CHECKS")
        (tmp_path / "settings.yaml").write_text("checks: {loud: own_checks:shout}\n")
        load_settings(tmp_path / "settings.yaml")
        assert "loud" in known_kinds()
        assert "shout" not in known_kinds()
    finally:
        monkeypatch.delenv("EVALQ_CHECKS", raising=False)
        load_settings()
    assert version.code_version() == plain
    assert "loud" not in known_kinds()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("shout", "is not NAME=MODULE:FUNCTION"),
        ("not shout=os:system", "is not NAME=MODULE:FUNCTION"),
        ("shout=os", "is not NAME=MODULE:FUNCTION"),
        ("a=m:f,a=m:g", "a name occurs twice"),
    ],
)
def test_settings_that_name_no_function_are_refused(named: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the form that is wanted."""
    monkeypatch.setenv("EVALQ_CHECKS", named)
    with pytest.raises(ConfigError, match=says):
        load_settings()


def test_a_module_that_is_not_there_is_said_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the name of the check and what was looked for; whoever has it is of other code."""
    monkeypatch.setenv("EVALQ_CHECKS", "polite=no_such_module:polite")
    load_settings()
    try:
        assert version.code_parts()["check polite"] == "no_such_module:polite none"
        with pytest.raises(ConfigError, match=r"the check 'polite' \(no_such_module:polite\) cannot be loaded"):
            known_kinds()
    finally:
        name_checks({})
