"""promptfoo's assertions as checks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from evalq.producer.importing.imported import Imported, Kind, cut
from evalq.producer.importing.patterns import NoCounterpart, accepted, to_re2
from evalq.producer.importing.promptfoo import trajectory
from evalq.producer.importing.promptfoo.javascript import AlwaysPasses, Program, check_of_program, transformed
from evalq.producer.importing.promptfoo.python_lines import check_of_python
from evalq.producer.importing.promptfoo.texts import NoText, javascript_text, parse_commas, rendered

# promptfoo's assertions that a model grades, as checks that evalq's judge decides.
# promptfoo asks a model of its own choice in its own words; evalq asks the target that `--judge` names, in its
# words. The requirement, the reference or the criterion is the same text. How the verdict is reached is not, and a
# note says so.

Check = dict[str, Any]
Given = tuple[Check, str]
"""A check, and how it differs."""

_JUDGE = "the judge that --judge names decides it, in evalq's words"
_SEARCH = f"{_JUDGE}; promptfoo's grader searches the web first, so name a judge that does"
_SIMILAR = f"{_JUDGE}; promptfoo measures it with embeddings"
_SERVICE = f"{_JUDGE}; promptfoo asks a service that scores"
_MEAN = "; promptfoo takes the mean over several criteria, evalq one score of all of them"
_LEAST, _G_EVAL = 0.5, 0.7
"""promptfoo's default thresholds of a score."""

GRADERS = ("provider", "rubricPrompt")
"""Keys of an assertion, or of a test's options, that choose the grader and its prompt."""


def _judge_text(value: Any) -> str:
    """A requirement as text, as promptfoo puts it into its prompt."""
    if isinstance(value, list | dict) and value:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return javascript_text(value)
    raise NoCounterpart("it needs a text as its value")


def _judge_threshold(assertion: Mapping[str, Any], otherwise: float = _LEAST) -> float:
    """The threshold, from 0 to 1. Raises NoCounterpart."""
    least = assertion.get("threshold")
    if least is None:
        return otherwise
    if isinstance(least, bool) or not isinstance(least, int | float) or not 0 <= least <= 1:
        raise NoCounterpart("its threshold is no number from 0 to 1")
    return float(least)


def _rubric(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    if assertion.get("threshold") is None:
        return {"rubric": _judge_text(value)}, _JUDGE
    return _scored(_judge_text(value), _judge_threshold(assertion)), _JUDGE


def _scored(criterion: str, least: float, most: int = 1) -> Check:
    return {"score": criterion, "from": 0, "to": most, "threshold": round(least * most, 12)}


def _search(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return _rubric(assertion, value, variables)[0], _SEARCH


def _factual(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return {"factual": _judge_text(value)}, _JUDGE


def _closed(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return {"rubric": _judge_text(value)}, _JUDGE


def _g_eval(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    several = isinstance(value, list) and len(value) > 1
    text = "\n".join(_judge_text(each) for each in value) if isinstance(value, list) else _judge_text(value)
    return _scored(_judge_text(text), _judge_threshold(assertion, _G_EVAL), 10), _JUDGE + (_MEAN if several else "")


def _pi(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    return _scored(_judge_text(value), _judge_threshold(assertion)), _SERVICE


def _relevance(criterion: str, why: str) -> Callable[[Mapping[str, Any], Any, Mapping[str, Any]], Given]:
    def make(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
        return _scored(criterion, _judge_threshold(assertion)), why

    return make


def _faithful(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    if "contextTransform" in assertion:
        raise NoCounterpart("a program takes its context out of the answer")
    context = variables.get("context")
    if isinstance(context, list):
        context = "\n\n".join(_judge_text(each) for each in context)
    if not isinstance(context, str) or not context:
        raise NoCounterpart("its test has no variable called context; promptfoo fails then, too")
    criterion = f"How much of what the answer claims follows from this context, and from nothing else:\n{context}"
    return _scored(criterion, _judge_threshold(assertion)), _JUDGE


def _goal(assertion: Mapping[str, Any], value: Any, variables: Mapping[str, Any]) -> Given:
    goal = trajectory.goal_of(value)
    check = {"rubric": goal} if assertion.get("threshold") is None else _scored(goal, _judge_threshold(assertion))
    return check | {"of": "conversation"}, f"{_JUDGE}, by the recorded messages; promptfoo by a summary of a trace"


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
    "trajectory:goal-success": _goal,
}
"""By promptfoo's type: a check that a judge decides, of an assertion, its value and the variables of its test."""


def graded(assertion: Any) -> bool:
    """Whether a model decides the assertion, or one in its set."""
    if not isinstance(assertion, Mapping):
        return False
    parts = assertion.get("assert")
    inner = isinstance(parts, list) and any(map(graded, parts))
    return inner or str(assertion.get("type")).removeprefix("not-") in JUDGED


# promptfoo's types of assertions: the check that each is, or why there is none.

Vars = Mapping[str, Any]


class Differs(NamedTuple):
    """A check that is nearly the same, and how it differs."""

    check: Check
    why: str


class Setting(NamedTuple):
    """The context of a test's checks: its variables, the reader of files that assertions name, and the program that
    transforms its answers first.
    """

    variables: Vars
    load: Callable[[str], Any]
    transform: Any = None


def _value_of(assertion: Mapping[str, Any], setting: Setting) -> Any:
    """The assertion's value with variables filled in; of a program with the variables, too. Raises NoText."""
    value = assertion.get("value")
    if str(assertion.get("type")).removeprefix("not-") in ("javascript", "python") and isinstance(value, str):
        given = setting.load(value) if value.startswith("file://") else rendered(value, setting.variables)
        return Program(str(given), setting.variables)
    if isinstance(value, str):
        return setting.load(value) if value.startswith("file://") else rendered(value, setting.variables)
    if isinstance(value, list):
        return [rendered(each, setting.variables) if isinstance(each, str) else each for each in value]
    return value


def _text(value: Any, *, numbers: bool = True) -> str:
    if isinstance(value, str) and value:
        return value
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return javascript_text(value)
    raise NoCounterpart("it needs a text as its value; with this one promptfoo fails")


def _equals(assertion: Mapping[str, Any], value: Any) -> Check:
    if value is None and "value" not in assertion:
        return {"equals": "undefined"}
    if value is None or isinstance(value, list | dict):
        # Of the whole answer: `equals` alone would take JSON out of a fenced block, too.
        return {"all": [{"is-json": True}, {"equals": value}]}
    return {"equals": javascript_text(value)}


def _containing(name: str, *, ignore: bool) -> Callable[[Mapping[str, Any], Any], Check]:
    def make(assertion: Mapping[str, Any], value: Any) -> Check:
        values: Any = _text(value)
        return {name: values} | ({"ignore-case": True} if ignore else {})

    return make


def _listed(name: str, *, ignore: bool) -> Callable[[Mapping[str, Any], Any], Check]:
    def make(assertion: Mapping[str, Any], value: Any) -> Check:
        values = parse_commas(value) if isinstance(value, str) else value
        if not isinstance(values, list) or not values:
            raise NoCounterpart("it needs a list of texts, or texts with commas between them")
        texts = [javascript_text(each) for each in values]
        if not all(texts):
            raise NoCounterpart("an empty text is in every answer")
        return {name: texts} | ({"ignore-case": True} if ignore else {})

    return make


def _regex(assertion: Mapping[str, Any], value: Any) -> Check:
    return {"regex": to_re2(_text(value, numbers=False), "javascript")}


def _starts_with(assertion: Mapping[str, Any], value: Any) -> Check:
    return {"starts-with": _text(value, numbers=False)}


def _is_json(assertion: Mapping[str, Any], value: Any) -> Check:
    if value in (None, "", False):
        return {"is-json": True}
    return {"all": [{"is-json": True}, {"json-schema": _schema(value)}]}


def _contains_json(assertion: Mapping[str, Any], value: Any) -> Differs:
    check: Check = {"contains-json": True}
    if value not in (None, "", False):
        # Negated it holds of an answer without JSON, too.
        check = {"all": [{"contains-json": True}, {"json-schema": _schema(value)}]}
    return Differs(
        check, "evalq takes JSON that is the whole answer or in one fenced block; promptfoo the first object"
    )


def _schema(value: Any) -> Any:
    from evalq.evalcore.records.yaml import DocumentFault, read_document

    if isinstance(value, str):
        try:
            value = read_document(value, "schema.yaml")
        except DocumentFault:
            raise NoCounterpart("its value is no JSON schema") from None
    if not isinstance(value, dict):
        raise NoCounterpart("its value is no JSON schema")
    if isinstance(value.get("$schema", ""), str):
        _require_known_words(value)
    # promptfoo's validator reads a schema that does not say otherwise by this draft.
    return value if "$schema" in value else {"$schema": "http://json-schema.org/draft-07/schema#", **value}


_ANNOTATIONS = frozenset((
    *("$schema", "$id", "$comment", "$defs", "$anchor", "$dynamicAnchor", "$vocabulary", "definitions", "title"),
    *("contentEncoding", "contentMediaType", "description", "default", "examples", "readOnly", "writeOnly"),
    *("deprecated", "then", "else"),
))  # fmt: skip
_DATA = ("enum", "const", "default", "examples")
_HOLDERS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def _require_known_words(schema: dict[str, Any]) -> None:
    """Raise NoCounterpart for a keyword that `json-schema` passes over and promptfoo's validator holds to, as `format`.

    That validator asserts formats (ajv-formats), knows keywords beyond the drafts (`nullable`), and fails on others.
    """
    from jsonschema import Draft7Validator
    from jsonschema.validators import validator_for

    known = validator_for(schema, default=Draft7Validator).VALIDATORS.keys() - {"format"} | _ANNOTATIONS
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, dict):
            continue
        for key, held in part.items():
            if key not in known:
                shown = f"{key}: {held}" if isinstance(held, str | bool) else key
                raise NoCounterpart(f"its schema has `{cut(shown)}`, which the check json-schema does not hold to")
            if key in _HOLDERS and isinstance(held, dict):
                waiting += held.values()
            elif key not in _DATA:
                waiting.append(held)


def _threshold(assertion: Mapping[str, Any], what: str) -> float:
    value = assertion.get("threshold")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise NoCounterpart(f"it needs {what} from 0 under threshold")
    return float(min(value, 10**15))


def _cost(assertion: Mapping[str, Any], value: Any) -> Check:
    return {"max-cost": _threshold(assertion, "an amount")}


def _latency(assertion: Mapping[str, Any], value: Any) -> Check:
    return {"max-latency": _threshold(assertion, "milliseconds") / 1000}


def _levenshtein(assertion: Mapping[str, Any], value: Any) -> Check:
    most = _threshold(assertion, "a number of edits") if assertion.get("threshold") is not None else 5.0
    if not isinstance(value, str):
        raise NoCounterpart("it needs a text as its value; with this one promptfoo fails")
    return {"edit-distance": value, "max": int(min(most, 10**9))}


def _refusal(assertion: Mapping[str, Any], value: Any) -> Differs:
    return Differs({"refusal": True}, "both are lists of phrases, and the lists are not the same")


def _word_count(assertion: Mapping[str, Any], value: Any) -> Check:
    bounds = value if isinstance(value, dict) else {"min": value, "max": value}
    parts: list[Check] = []
    for key, name in (("min", "min-length"), ("max", "max-length")):
        if bounds.get(key) is not None:
            parts.append({name: _count(bounds[key]), "unit": "words"})
    if not parts or set(bounds) - {"min", "max"}:
        raise NoCounterpart("it needs a number of words, or min and max")
    return parts[0] if len(parts) == 1 else {"all": parts}


def _count(value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise NoCounterpart("it needs a number of words, or min and max") from None
    if isinstance(value, bool) or not number.is_integer() or number < 0:
        raise NoCounterpart("no answer has such a number of words")
    return int(number)


def _javascript(assertion: Mapping[str, Any], value: Any) -> Check | Differs:
    if not isinstance(value, Program):
        raise NoCounterpart("it needs a program as its value")
    if assertion.get("threshold") is not None or assertion.get("config") is not None:
        raise NoCounterpart("its program is given a threshold or a config, which only promptfoo has")
    check, why = check_of_program(value, negated=str(assertion["type"]).startswith("not-"))
    return Differs(check, why) if why else check


def _python(assertion: Mapping[str, Any], value: Any) -> Check:
    if not isinstance(value, Program):
        raise NoCounterpart("it needs a program as its value")
    if assertion.get("threshold") is not None or assertion.get("config") is not None:
        raise NoCounterpart("its program is given a threshold or a config, which only promptfoo has")
    return check_of_python(value.text, value.variables)


def _finish(assertion: Mapping[str, Any], value: Any) -> Differs:
    check = {"finish": _text(value, numbers=False).lower()}
    return Differs(check, "an answer whose record has no finish is an error; promptfoo fails it")


def _did(name: str) -> Callable[[Mapping[str, Any], Any], Differs]:
    def make(assertion: Mapping[str, Any], value: Any) -> Differs:
        return Differs(trajectory.COUNTERPARTS[name](assertion, value), trajectory.DIFFERENCE)

    return make


COUNTERPARTS: Mapping[str, Callable[[Mapping[str, Any], Any], Check | Differs]] = {
    "equals": _equals,
    "contains": _containing("contains", ignore=False),
    "icontains": _containing("contains", ignore=True),
    "contains-any": _listed("contains-any", ignore=False),
    "icontains-any": _listed("contains-any", ignore=True),
    "contains-all": _listed("contains-all", ignore=False),
    "icontains-all": _listed("contains-all", ignore=True),
    "regex": _regex,
    "starts-with": _starts_with,
    "is-json": _is_json,
    "contains-json": _contains_json,
    "cost": _cost,
    "latency": _latency,
    "levenshtein": _levenshtein,
    "is-refusal": _refusal,
    "word-count": _word_count,
    "javascript": _javascript,
    "python": _python,
    "finish-reason": _finish,
    **{name: _did(name) for name in trajectory.COUNTERPARTS},
}
"""By promptfoo's type: the check that an assertion of it is, from that and its value with variables filled in."""

_PROGRAM = "it runs a program of yours, which no import does: write a check of your own in Python"
_MARKUP = "evalq has no check of markup or SQL"
_MEASURE = "evalq has no measure that gives the same number"
_TRACE = "it looks at spans of a trace; checks such as calls-tool, tool-result and recovers look at recorded calls"

REASONS: Mapping[str, tuple[Kind, str]] = {
    "agent-rubric": ("none", "an agent looks at files and runs programs to judge; a check rubric looks at the answer"),
    **dict.fromkeys(
        ("context-recall", "context-relevance"), ("none", "it judges the context that the test gives, not the answer")
    ),
    **dict.fromkeys(
        ("select-best", "max-score"),
        ("none", "it compares the outputs of several providers; a check prefer compares those of two runs"),
    ),
    **dict.fromkeys(
        ("similar", "similar:cosine", "similar:dot", "similar:euclidean"),
        ("later", "embeddings compare, and no check of evalq does: write a check factual, or token-f1"),
    ),
    **dict.fromkeys(("ruby", "webhook"), ("none", _PROGRAM)),
    **dict.fromkeys(
        ("is-html", "contains-html", "is-xml", "contains-xml", "is-sql", "contains-sql"), ("none", _MARKUP)
    ),
    **dict.fromkeys(("bleu", "gleu", "meteor", "rouge-n"), ("none", _MEASURE)),
    **dict.fromkeys(("perplexity", "perplexity-score"), ("none", "evalq records no probabilities of tokens")),
    **dict.fromkeys(("classifier", "moderation", "guardrails"), ("none", "another service classifies")),
    **dict.fromkeys(
        ("is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "tool-call-f1"),
        ("none", "it needs the provider's list of tools; calls-tool and tool-calls name the calls that are wanted"),
    ),
    **dict.fromkeys(
        (*("trace-error-spans", "trace-span-count", "trace-span-duration", "skill-used"),),
        ("none", _TRACE),
    ),
    "human": ("none", "a person judges"),
}
"""{promptfoo's type: why it has no counterpart}."""


OTHER_GRADER = "--judge names who judges, or `judge` beside a check; `prompt` there holds words of your own"
"""Why a grader or its prompt, beside an assertion or in options, is not taken over."""
_KNOWN = {"type", "value", "threshold", "weight", "metric", "assert", "config"}


class _AssertionReader:
    def __init__(self, imported: Imported, setting: Setting, where: Callable[[Sequence[str | int]], str]) -> None:
        self._imported, self._setting, self._where = imported, setting, where
        self.lost = False

    def check(self, assertion: Any, keys: Sequence[str | int]) -> Check | None:
        """The check of an assertion; None, with a note, if it has none."""
        where = self._where(keys)
        if not isinstance(assertion, Mapping) or not isinstance(assertion.get("type"), str):
            return self._no(where, "an assertion without a type", "none", "promptfoo does not take it, either")
        name = assertion["type"]
        check = self._set(assertion, keys) if name == "assert-set" else self._single(assertion, name, where)
        return None if check is None else self._shared(check, assertion, where, name)

    def _single(self, assertion: Mapping[str, Any], name: str, where: str) -> Check | None:
        base = name.removeprefix("not-")
        if base not in COUNTERPARTS and base not in JUDGED:
            kind, why = REASONS.get(base, ("none", "promptfoo 0.123 does not know it, either"))
            return self._no(where, name, kind, why)
        try:
            made = self._made(assertion, base)
            check, why = made if isinstance(made, Differs) else (made, "")
            accepted(check)
            check = _negated(check) if base != name else check
            check = self._transformed(check, assertion.get("transform"))
            accepted(check)
        except (NoCounterpart, NoText) as error:
            return self._no(where, name, "none", str(error))
        except AlwaysPasses as error:
            # Nothing that could fail is lost.
            self._imported.note("differs", where, name, str(error))
            return None
        if why:
            self._imported.note("differs", where, name, why)
        return check

    def _made(self, assertion: Mapping[str, Any], base: str) -> Check | Differs:
        """The check of an assertion, not yet negated. Raises NoCounterpart and NoText."""
        value = _value_of(assertion, self._setting)
        if base in COUNTERPARTS:
            return COUNTERPARTS[base](assertion, value)
        return Differs(*JUDGED[base](assertion, value, self._setting.variables))

    def _transformed(self, check: Check, own: Any) -> Check:
        """The check after the assertion's transform, or its test's."""
        if own and self._setting.transform:
            raise NoCounterpart("its test and itself transform the answer, one after the other")
        return transformed(check, own or self._setting.transform)

    def _set(self, assertion: Mapping[str, Any], keys: Sequence[str | int]) -> Check | None:
        """The check of a set: all assertions, or enough of them to reach the threshold."""
        where = self._where(keys)
        listed = assertion.get("assert")
        listed = listed if isinstance(listed, list) else []
        parts = [self.check(part, [*keys, "assert", index]) for index, part in enumerate(listed)]
        found = [part for part in parts if part is not None]
        least = assertion.get("threshold")
        if not found:
            return self._no(where, "assert-set", "none", "no assertion in it has a counterpart")
        if least is None:
            return {"all": found}
        if len(found) < len(parts):
            return self._no(where, "assert-set", "none", "its threshold is over assertions without a counterpart, too")
        if isinstance(least, bool) or not isinstance(least, int | float) or not -1e9 < least < 1e9:
            return self._no(where, "assert-set", "none", "its threshold is no number")
        if any(part.get("weight", 1) != 1 for part in found):
            return self._no(where, "assert-set", "none", "its threshold is over assertions of different weights")
        count = math.ceil(least * len(found) - 1e-9)
        if not 0 < count <= len(found):
            return self._no(where, "assert-set", "none", f"with threshold {least:g} it always decides the same")
        self._imported.note("differs", where, "assert-set", "its score is the share of the threshold that was reached")
        return {"at-least": found, "count": count}

    def _shared(self, check: Check, assertion: Mapping[str, Any], where: str, name: str) -> Check | None:
        """The check with its weight and its name; further keys are noted."""
        weight, metric = assertion.get("weight", 1), assertion.get("metric")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1e9:
            return self._no(where, name, "none", "its weight is no number from 0")
        if weight != 1:
            check = {**check, "weight": weight}
        if metric is not None:
            try:
                check = {**check, "name": rendered(str(metric), self._setting.variables)}
            except NoText as error:
                self._imported.note("none", where, f"{name}: metric", str(error))
        for key in sorted(set(assertion) - _KNOWN - {"transform"}):
            if key in GRADERS and name.removeprefix("not-") in JUDGED:
                self._imported.note("differs", where, f"{name}: {key}", OTHER_GRADER)
            else:
                self._imported.note("none", where, f"{name}: {key}", "evalq's check has no such option")
        return check

    def _no(self, where: str, what: str, kind: Kind, why: str) -> Check | None:
        self.lost = True
        self._imported.note(kind, where, what, why)
        return None


def _negated(check: Check) -> Check:
    """The check with `not-` before its name, or without it."""
    name = next(iter(check))
    other = name.removeprefix("not-") if name.startswith("not-") else f"not-{name}"
    return {other: check[name], **{key: value for key, value in check.items() if key != name}}


def checks_of(
    assertions: Sequence[tuple[Any, Sequence[str | int], Callable[[Sequence[str | int]], str]]],
    setting: Setting,
    imported: Imported,
) -> tuple[list[Check], list[Any], bool]:
    """The checks of (assertion, keys, function from keys to a location), their assertions, and whether any is lost."""
    checks: list[Check] = []
    kept: list[Any] = []
    lost = False
    for assertion, keys, where in assertions:
        reader = _AssertionReader(imported, setting, where)
        check = reader.check(assertion, keys)
        lost = lost or reader.lost
        if check is not None:
            checks.append(check)
            kept.append(assertion)
    return checks, kept, lost
