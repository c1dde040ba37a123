"""Composed checks over parts that hold, do not, find nothing to look at, or cannot be computed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import CheckVerdict, compile_check

HOLDS: dict[str, Any] = {"contains": "a"}
FAILS: dict[str, Any] = {"contains": "b"}
UNLOOKED: dict[str, Any] = {"contains": "a", "at": "$.missing"}
LACKING: dict[str, Any] = {"max-cost": 1}
TRUTH = {"true": HOLDS, "false": FAILS, "unlooked": UNLOOKED, "error": LACKING}


def said(check: dict[str, Any]) -> str:
    """What becomes of a check, in a word."""
    verdict = compile_check(check).judge(CheckedAnswer("a"))
    return word(verdict)


def word(verdict: CheckVerdict) -> str:
    """One of the four, held to what a verdict of it has."""
    if verdict.passed is None:
        assert verdict.error
        return "error"
    if not verdict.looked:
        assert (verdict.passed, verdict.score) == (False, 0.0)
        return "unlooked"
    return "true" if verdict.passed else "false"


@pytest.mark.parametrize("name", ["any", "all", "at-least"])
@pytest.mark.parametrize(
    "part", [UNLOOKED, {"not-any": [UNLOOKED]}, {"not-json-path": "$.x"}, {"chrf": "x", "at": "$"}]
)
def test_nothing_passes_because_nothing_was_there_to_look_at(name: str, part: dict[str, Any]) -> None:
    """Neither a composed check nor the one that negates it."""
    for before in ("", "not-"):
        verdict = compile_check({f"{before}{name}": [part]}).judge(CheckedAnswer("no json"))
        assert (verdict.passed, verdict.score, verdict.looked) == (False, 0.0, False)
        assert "nothing to look at" in verdict.found


parts = st.lists(st.sampled_from(sorted(TRUTH)), min_size=1, max_size=5)


@given(parts, st.data())
def test_composed_checks_are_as_sure_as_their_parts(words: list[str], data: st.DataObject) -> None:
    """A composed check says what it would say whichever way the parts would have come out that could not be looked at;
    where that differs, nothing, and so does its negation. A part that lacks its record decides before all of them.
    """
    count = data.draw(st.integers(1, len(words)))
    checks = [TRUTH[each] for each in words]
    for name, needed in (("any", 1), ("all", len(words)), ("at-least", count)):
        options = {"count": count} if name == "at-least" else {}
        unlooked = words.count("unlooked")
        outcomes = {words.count("true") + could >= needed for could in range(unlooked + 1)}
        wanted = "error" if "error" in words else "unlooked" if len(outcomes) > 1 else str(outcomes.pop()).lower()
        turned = {"true": "false", "false": "true"}.get(wanted, wanted)
        assert said({name: checks, **options}) == wanted
        assert said({f"not-{name}": checks, **options}) == turned
        assert said({"not-any": [{f"not-{name}": checks, **options}]}) == wanted


@given(parts, st.booleans())
def test_what_was_not_looked_at_adds_nothing_to_a_score(words: list[str], negated: bool) -> None:
    """Whether it is negated or not: the score that is shown is the least that it could be."""
    known = [each for each in words if each != "error"] or ["true"]
    for name in ("any", "all", "at-least"):
        check = f"not-{name}" if negated else name
        scores = []
        for instead in (HOLDS, FAILS):
            checks = [instead if each == "unlooked" else TRUTH[each] for each in known]
            scores.append(compile_check({check: checks}).judge(CheckedAnswer("a")).score)
        least = compile_check({check: [TRUTH[each] for each in known]}).judge(CheckedAnswer("a")).score
        assert least is not None
        assert least <= min(score for score in scores if score is not None) + 1e-12
