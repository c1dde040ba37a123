"""promptfoo's assertions that a model grades, as checks that evalq's judge decides.

promptfoo asks a model of its own choice in its own words; evalq asks the target that `--judge` names, in its words. The
requirement, the reference or the criterion is the same text. How the verdict is reached is not, and a note says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from evalq.producer.importing.patterns import NoCounterpart
from evalq.producer.importing.promptfoo.texts import javascript_text

__all__ = ["GRADERS", "JUDGED", "graded"]

Check = dict[str, Any]
Given = tuple[Check, str]
"""A check, and how it differs."""

_JUDGE = "the judge that --judge names decides it, told in evalq's words"
_SEARCH = f"{_JUDGE}; promptfoo's grader searches the web first, so name a judge that does"
_SIMILAR = f"{_JUDGE}; promptfoo measures it with embeddings"
_SERVICE = f"{_JUDGE}; promptfoo asks a service that scores"
_MEAN = "; promptfoo takes the mean over several criteria, evalq one score of all of them"
_LEAST, _G_EVAL = 0.5, 0.7
"""What a score has to reach in promptfoo where no threshold is given."""

GRADERS = ("provider", "rubricPrompt")
"""Keys beside an assertion, or in a test's options, that say who grades, and in what words."""


def _text(value: Any) -> str:
    """A requirement as text, as promptfoo puts it into its prompt."""
    if isinstance(value, list | dict) and value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return javascript_text(value)
    raise NoCounterpart("it needs a text as its value")


def _threshold(assertion: Mapping[str, Any], otherwise: float = _LEAST) -> float:
    """The threshold, from 0 to 1. Raises NoCounterpart."""
    least = assertion.get("threshold")
    if least is None:
        return otherwise
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise NoCounterpart("its threshold is no number from 0 to 1")
    return float(least)


def _rubric(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    if assertion.get("threshold") is None:
        return {"rubric": _text(value)}, _JUDGE
    return _scored(_text(value), _threshold(assertion)), _JUDGE


def _scored(criterion: str, least: float, most: int = 1) -> Check:
    return {"score": criterion, "from": 0, "to": most, "threshold": round(least * most, 12)}


def _search(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return _rubric(assertion, value, variables)[0], _SEARCH


def _factual(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return {"factual": _text(value)}, _JUDGE


def _closed(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return {"rubric": _text(value)}, _JUDGE


def _g_eval(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    several = isinstance(value, list) and len(value) > 1
    text = "\n".join(_text(each) for each in value) if isinstance(value, list) else _text(value)
    return _scored(_text(text), _threshold(assertion, _G_EVAL), 10), _JUDGE + (_MEAN if several else "")


def _pi(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return _scored(_text(value), _threshold(assertion)), _SERVICE


def _relevance(criterion: str, why: str) -> Callable[[Mapping[str, Any], Any, Mapping[str, Any]], Given]:
    def make(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
        return _scored(criterion, _threshold(assertion)), why

    return make


def _faithful(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    if "contextTransform" in assertion:
        raise NoCounterpart("a program takes its context out of the answer")
    context = variables.get("context")
    if isinstance(context, list):
        context = "\n\n".join(_text(each) for each in context)
    if not isinstance(context, str) or not context:
        raise NoCounterpart("its test has no variable called context; promptfoo fails then, too")
    criterion = f"How much of what the answer claims follows from this context, and from nothing else:\n{context}"
    return _scored(criterion, _threshold(assertion)), _JUDGE


JUDGED: Mapping[str, Callable[[Mapping[str, Any], Any, Mapping[str, Any]], Given]] = {
    "llm-rubric": _rubric,
    "search-rubric": _search,
    "model-graded-closedqa": _closed,
    "factuality": _factual,
    "model-graded-factuality": _factual,
    "g-eval": _g_eval,
    "pi": _pi,
    "answer-relevance": _relevance(
        "How relevant the answer is to what was asked, and how little of it is beside the point.", _SIMILAR
    ),
    "conversation-relevance": _relevance("How relevant the answer is to the conversation before it.", _JUDGE),
    "context-faithfulness": _faithful,
}
"""By promptfoo's type: a check that a judge decides, of an assertion, its value and the variables of its test."""


def graded(assertion: Any) -> bool:
    """Whether a model decides the assertion, or one in its set."""
    if not isinstance(assertion, Mapping):
        return False
    parts = assertion.get("assert")
    inner = isinstance(parts, list) and any(map(graded, parts))
    return inner or str(assertion.get("type")).removeprefix("not-") in JUDGED
