"""promptfoo's types of assertions: the check that each is, or why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evalq.producer.importing.imported import Kind, cut
from evalq.producer.importing.patterns import NoCounterpart, to_re2
from evalq.producer.importing.promptfoo.javascript import Program, check_of_program
from evalq.producer.importing.promptfoo.python_lines import check_of_python
from evalq.producer.importing.promptfoo.texts import javascript_text, parse_commas, rendered

__all__ = ["COUNTERPARTS", "REASONS", "Check", "Differs", "Setting", "value_of"]

Check = dict[str, Any]
Vars = Mapping[str, Any]


class Differs(NamedTuple):
    """A check that says about the same, and how it differs."""

    check: Check
    why: str


class Setting(NamedTuple):
    """What the checks of a test are made for: its variables, how a file that an assertion names is read, and the
    program that its answers go through first.
    """

    variables: Vars
    load: Callable[[str], Any]
    transform: Any = None


def value_of(assertion: Mapping[str, Any], setting: Setting) -> Any:
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
}
"""By promptfoo's type: the check that an assertion of it is, from that and its value with variables filled in."""

_PROGRAM = "it runs a program of yours, which no import does: write a check of your own in Python"
_MARKUP = "evalq has no check of markup or SQL"
_MEASURE = "evalq has no measure that gives the same number"
_TRACE = (
    "it looks at the traces of a run, which evalq does not record; calls-tool and tool-calls look at recorded calls"
)

REASONS: Mapping[str, tuple[Kind, str]] = {
    "agent-rubric": ("none", "an agent looks at files and runs programs to judge; a check rubric looks at the answer"),
    **dict.fromkeys(
        ("context-recall", "context-relevance"), ("none", "it judges the context that the test gives, not the answer")
    ),
    **dict.fromkeys(
        ("select-best", "max-score"),
        ("none", "it compares the outputs of several providers; a check prefer compares those of two runs"),
    ),
    "trajectory:goal-success": ("none", _TRACE),
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
        (
            *("trajectory:tool-args-match", "trajectory:step-count", "trajectory:tool-sequence"),
            *("trajectory:tool-used", "trace-error-spans", "trace-span-count", "trace-span-duration", "skill-used"),
        ),
        ("none", _TRACE),
    ),
    "finish-reason": ("none", "recorded outputs do not keep why an answer ended"),
    "human": ("none", "a person judges"),
}
"""By promptfoo's type: why it has no counterpart."""
