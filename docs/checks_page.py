"""The page of all checks, from their declarations."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from evalq.evalcore.evaluators.checks import VOCABULARY
from evalq.evalcore.evaluators.checks.vocabulary.declaring import Kind
from evalq.evalcore.views.markdown import table

_INTRO = """# Checks

A case's `checks` ([evalq checks](evaluators/checks.md)) is a list. Each entry is a mapping of one check's name, with
its options beside it.

```yaml
checks:
  - {contains: hello, ignore-case: true, weight: 2}
  - {not-contains: bye}
  - not-refusal
  - any: [{max-length: 3, unit: words}, {regex: '^\\d+$'}]
  - at-least: [{contains: name}, {contains: date}, {contains: place}]
    count: 2
```

If you write a name alone, its value is the case's `expected`, for checks that take a value.
`any` and `all` take a list of checks. `at-least` takes a list and a `count` of checks that have to hold.

`not-` before any name negates the check. If the answer has nothing for the check to look at, the check fails, even with
`not-` (`looked` is false in its record):

| check | the answer needs |
| --- | --- |
| any with `at` | something at that path |
| `json-path`, `json-schema` | JSON in the answer; `not-json-path` passes if nothing is at the path |
| `number` with `which` | the number that it names; `not-number` without `which` requires that no number is this one |
| `captures` | a match of a pattern |
| `tool-args`, `tool-result` | a call of the tool, with the number that `which` names |
| `calls-tool`, `tool-calls`, `tool-args`, `no-repeat` | arguments that can be read, if the verdict depends on them |
| `edit-similarity`, `edit-distance`, `token-f1`, `rouge-l`, `chrf` | a text, of 200,000 characters at most |
| any about the text or the JSON | a text: not null, and not tool calls alone |

In `any`, `all` and `at-least` such a part is neither true nor false. If the other parts do not decide, the whole check
fails, even with `not-`. If the record lacks a value that a check needs, such as its cost, the output is an error,
whatever the other parts say.

An answer of tool calls alone has no text. A check such as `not-contains` would pass it, so it fails instead. If another
check of the case wants tool calls, such as `calls-tool`, the answer may do without a text: then it is an empty one.

Other checks of text read data as its JSON, without spaces, and null at a path as an empty text. They compare texts
character by character: `é` as one character differs from `é` as two, unless you set `normalize: nfc`. `nfkc` also takes
`²` for `2`. Options of every check:

"""

_COMMON: list[tuple[object, ...]] = [
    ("name", "text", "its name in results (default: the check's name). evalq counts checks of one name together"),
    (
        "weight",
        "a number from 0",
        "its weight in an output's score (1); with 0 the report shows the check, but it never decides",
    ),
    (
        "threshold",
        "a number from 0 to 1",
        "the least score that passes, for checks that measure (`score`: on its scale)",
    ),
    (
        "at",
        "a path",
        "a part of the answer's JSON (`$.items[0]`) or of its record (`$record.extra.x`); without it the check fails",
    ),
    (
        "about",
        "`answer` or `user`",
        "with `user`, it checks what the simulated user says: an output that fails it counts neither way",
    ),
]
_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    Any: "any value",
}


def checks_page() -> str:
    """Every check: what it holds an answer to, what stands behind its name, its options, an example."""
    parts = [_INTRO, table(("option", "takes", "meaning"), _COMMON)]
    parts += [_section(kind) for kind in VOCABULARY.values()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _section(kind: Kind) -> str:
    example = msgspec.yaml.encode([kind.example]).decode().rstrip("\n")
    takes = _takes(kind.value)
    least = f" Passes from a score of {kind.threshold:g}." if kind.threshold is not None else ""
    if kind.name == "score":
        least = " Passes from the middle of the scale."
    needs = f" Needs `pip install evalq[{kind.needs}]`." if kind.needs else ""
    text = f"## {kind.name}\n\n{kind.summary} Takes {takes}.{least}{needs}\n\n```yaml\n{example}\n```\n"
    rows = list(_options(kind))
    return text + ("\n" + table(("option", "takes", "default", "meaning"), rows) if rows else "")


def _options(kind: Kind) -> Iterator[tuple[object, ...]]:
    for field in msgspec.structs.fields(kind.options):
        meaning = _description(field.type)
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        shown = (
            "-" if default in (None, {}, [], "", msgspec.UNSET) else msgspec.json.encode(default).decode().strip('"')
        )
        yield field.encode_name, _takes(field.type), shown, meaning


def _description(kind: Any) -> str:
    for meta in getattr(kind, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    return ""


def _takes(kind: Any) -> str:
    """A type in words."""
    if kind == bool | None:
        return "nothing (or true)"
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _takes(args[0])
    if origin is typing.Literal:
        return " or ".join(f"`{arg}`" for arg in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_takes(arg) for arg in args if arg not in (type(None), msgspec.UnsetType)))
    if origin is list:
        return f"a list, each {_takes(args[0])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "{" + ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) + "}"
    return _WORDS.get(origin or kind, "any value")
