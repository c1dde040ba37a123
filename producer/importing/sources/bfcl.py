"""BFCL, the Berkeley Function Calling Leaderboard: questions with functions, and their possible answers.

``possible_answer/NAME`` beside a file of questions has the calls wanted: for each argument a list of values, in which
an empty text says that the argument may be left out. Texts are compared without spaces, some signs, and case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.producer.importing.patterns import NoCounterpart
from evalq.producer.importing.reading import read_lines

Schema = Any

_IGNORED = re.compile(r"[ ,./\-_*^]")
_BETWEEN = r"[ ,./\-_*^]*"
_LONGEST = 300
"""Characters of a text: a pattern has a part for each."""
_OTHER_LANGUAGES = ("java", "javascript")
_WITH_ENVIRONMENT = ("multi_turn", "memory", "web_search", "format_sensitivity")
_SCALARS = {"integer": "integer", "float": "number", "boolean": "boolean"}
_LISTS = ("array", "tuple")
_NUMBERS = "numbers are compared by value: evalq takes 5.0 for 5, where BFCL wants an integer"
_DOTS = "BFCL takes _ for the . in its name from models whose API has no dots: name the function as your agent does"


def read(path: Path, request: ImportRequest, imported: Imported) -> None:
    """Fill ``imported`` from a file of questions and the possible answers. Raises ConfigError for other files."""
    answers = _answers(path.parent / "possible_answer" / path.name)
    found = False
    for line, question in read_lines(path):
        where = f"{path}:{line}"
        if not (isinstance(question, dict) and isinstance(question.get("question"), list)) or "id" not in question:
            raise ConfigError(f"{where}: not a question of BFCL: it needs id and question")
        found = True
        identity = str(question["id"])
        category = re.sub(r"_\d+(-\d+)*$", "", identity)
        try:
            check = _check(question, category, answers.get(identity), where, imported)
        except NoCounterpart as error:
            imported.note("none", where, f"a question of {category}", str(error), identity)
            continue
        case = {"id": identity, "input": _messages(question["question"]), "checks": [check], "tags": [category]}
        imported.add_case(case, where, request)
    if not found:
        raise ConfigError(f"{path}: no question of BFCL")


def _answers(path: Path) -> dict[str, Any]:
    """{id: the calls wanted}; empty if there is no such file."""
    if not path.exists():
        return {}
    return {
        str(each["id"]): each.get("ground_truth")
        for _, each in read_lines(path)
        if isinstance(each, dict) and "id" in each
    }


def _messages(turns: Any) -> Any:
    """The messages of the first turn: a question has one."""
    first = turns[0] if turns and isinstance(turns[0], list) else turns
    return [{"role": str(each.get("role")), "content": str(each.get("content") or "")} for each in _mappings(first)]


def _check(question: Mapping[str, Any], category: str, wanted: Any, where: str, imported: Imported) -> dict[str, Any]:
    """The check of a question. Raises NoCounterpart."""
    if category.startswith(_WITH_ENVIRONMENT):
        raise NoCounterpart("it runs calls in an environment of BFCL, and compares what is left there")
    if category.endswith(_OTHER_LANGUAGES):
        raise NoCounterpart("its values are source text of Java or JavaScript")
    if "irrelevance" in category:
        return {"max-tool-calls": 0}
    if "relevance" in category:
        return {"calls-tool": "*"}
    if not isinstance(wanted, list) or not wanted:
        raise NoCounterpart("possible_answer beside the file has no calls for it")
    functions = {str(each.get("name")): each for each in _mappings(question.get("function"))}
    calls = [_call(each, functions, where, imported) for each in wanted]
    return {"tool-calls": calls, "order": "unordered"}


def _mappings(value: Any) -> Sequence[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _call(wanted: Any, functions: Mapping[str, Any], where: str, imported: Imported) -> dict[str, Any]:
    """A call wanted, with a schema of its arguments."""
    if not isinstance(wanted, Mapping) or len(wanted) != 1:
        raise NoCounterpart("a possible answer is not one function with its arguments")
    ((name, possible),) = wanted.items()
    parameters = functions.get(name, {}).get("parameters")
    if not isinstance(parameters, Mapping) or not isinstance(possible, Mapping):
        raise NoCounterpart(f"it has no function {name}")
    if "*" in name:
        raise NoCounterpart("to evalq, * in a name stands for any characters")
    if "." in name:
        imported.note("differs", where, "a name with dots", _DOTS, name)
    schema, numbers = arguments_schema(parameters, possible)
    if numbers:
        imported.note("differs", where, "numbers", _NUMBERS, name)
    return {"name": name, "schema": schema}


def arguments_schema(parameters: Mapping[str, Any], possible: Mapping[str, Any]) -> tuple[Schema, bool]:
    """A JSON Schema of the arguments that BFCL takes, and whether there are numbers. Raises NoCounterpart."""
    described = parameters.get("properties")
    described = described if isinstance(described, Mapping) else {}
    properties: dict[str, Any] = {}
    for key, values in possible.items():
        if not isinstance(values, list):
            raise NoCounterpart(f"the possible values of {key} are no list")
        if key in described:
            properties[key] = _value_schema(described[key], values)
    numbers = any(_type_of(each) in _SCALARS for each in described.values())
    required = {key for key, values in possible.items() if "" not in values}
    listed = parameters.get("required")
    required |= {each for each in listed if isinstance(each, str)} if isinstance(listed, list) else set()
    return {"properties": properties, "required": sorted(required), "additionalProperties": False}, numbers


def _type_of(described: Any) -> str:
    kind = described.get("type") if isinstance(described, Mapping) else None
    return kind if isinstance(kind, str) else "unknown"


def _value_schema(described: Any, values: Sequence[Any]) -> Schema:
    kind = _type_of(described)
    wanted = [each for each in values if each != ""]
    if kind in ("string", "any"):
        return _one_of([_text_schema([each for each in values if isinstance(each, str)])])
    if kind in _SCALARS:
        # A text in place of a number or a boolean is the name of a variable.
        variables = (
            [each for each in wanted if isinstance(each, str)] if isinstance(next(iter(wanted), None), str) else []
        )
        typed = [each for each in wanted if isinstance(each, bool) == (kind == "boolean") and not isinstance(each, str)]
        return _one_of(
            [{"type": _SCALARS[kind], "enum": typed}] if typed else [], [{"enum": variables}] if variables else []
        )
    if kind == "dict":
        return _one_of([_object_schema(each) for each in wanted if isinstance(each, Mapping)])
    if kind in _LISTS:
        nested = _type_of(described.get("items"))
        lists = [_list_schema(each, objects=nested == "dict") for each in wanted if isinstance(each, list)]
        # BFCL reads an empty text among the values as an empty list, too.
        return _one_of(lists, [{"type": "array", "maxItems": 0}] if "" in values and nested != "dict" else [])
    raise NoCounterpart(f"a parameter has the type {kind}")


def _one_of(*alternatives: Sequence[Schema]) -> Any:
    every = [each for listed in alternatives for each in listed]
    return (every[0] if len(every) == 1 else {"anyOf": every}) if every else False


def _text_schema(texts: Sequence[str]) -> Schema:
    return {"type": "string", "pattern": f"^(?:{'|'.join(map(_text_pattern, texts))})$"} if texts else {"enum": []}


def _text_pattern(text: str) -> str:
    """RE2's pattern of the texts that BFCL takes for this one."""
    if len(text) > _LONGEST:
        raise NoCounterpart(f"a possible value has more than {_LONGEST} characters")
    signs = [_sign(each) for each in _IGNORED.sub("", text).lower()]
    return f"(?i:{_BETWEEN}{''.join(f'{each}{_BETWEEN}' for each in signs)})"


def _sign(sign: str) -> str:
    if sign in "'\"":
        return "['\"]"
    return sign if sign.isalnum() else f"\\x{{{ord(sign):x}}}"


def _object_schema(wanted: Mapping[str, Any]) -> Schema:
    properties = {}
    for key, values in wanted.items():
        if not isinstance(values, list):
            raise NoCounterpart(f"the possible values of {key} are no list")
        texts = [each for each in values if isinstance(each, str)]
        others = [each for each in values if not isinstance(each, str)]
        properties[key] = _one_of([_text_schema(texts)] if texts else [], [{"enum": others}] if others else [])
    required = sorted(key for key, values in wanted.items() if "" not in values)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list_schema(wanted: Sequence[Any], *, objects: bool) -> Schema:
    if objects and not all(isinstance(each, Mapping) for each in wanted):
        raise NoCounterpart("a possible value is a list of objects and others")
    items: list[Any] = [
        _object_schema(each) if objects else _text_schema([each]) if isinstance(each, str) else {"const": each}
        for each in wanted
    ]
    length = {"minItems": len(items), "maxItems": len(items)}
    return {"type": "array", **length, **({"prefixItems": items} if items else {})}
