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

__all__ = ["checks_page"]

_INTRO = """# Checks

What may stand in a case's `checks` ([evalq checks](evaluators/checks.md)): a mapping of one name, with options
beside it.

```yaml
checks:
  - {contains: hello, ignore-case: true, weight: 2}
  - {not-contains: bye}
  - not-refusal
  - any: [{max-length: 3, unit: words}, {regex: '^\\d+$'}]
  - at-least: [{contains: name}, {contains: date}, {contains: place}]
    count: 2
```

A name by itself takes the case's `expected` as its value, where it takes one.
`any` and `all` hold a list of checks, `at-least` one of which `count` have to hold.

`not-` before any name turns it round: what the check looks at is there, and is not as it says. Where nothing is there
to look at, a check fails, negated or not (`looked` is false in its record):

| check | what has to be there |
| --- | --- |
| any with `at` | something at that path |
| `json-path`, `json-schema` | JSON in the answer; `not-json-path` passes where nothing is at the path |
| `number` with `which` | the number that it names; `not-number` without `which` says that none is this one |
| `captures` | a match of a pattern |
| `edit-similarity`, `edit-distance`, `token-f1`, `rouge-l`, `chrf` | a text, of 200,000 characters at most |

In `any`, `all` and `at-least` such a part is neither true nor false: where the other parts do not decide, the whole
fails, negated or not. What the record lacks, such as its cost, makes the output an error, whatever the other parts say.

Other checks of text look at data as its JSON, without spaces, and at null as an empty text. Texts are compared sign by
sign: `é` as one sign is not `é` as two, unless `normalize: nfc` says so (`nfkc` takes `²` for `2`, too). Options of
every check:

"""

_COMMON: list[tuple[object, ...]] = [
    ("name", "text", "what it is called in results; its own name otherwise. Checks of one name are counted together"),
    ("weight", "a number from 0", "what it counts for in an output's score (1); with 0 it is shown, and never decides"),
    (
        "threshold",
        "a number from 0 to 1",
        "the least score that passes, of checks that measure (`score`: on its scale)",
    ),
    (
        "at",
        "a path",
        "the part of the answer's JSON that it looks at, such as `$.choices[0].text`; nothing there fails it",
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
        shown = "-" if default in (None, {}, "", msgspec.UNSET) else msgspec.json.encode(default).decode().strip('"')
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
        return " or ".join(dict.fromkeys(_takes(arg) for arg in args if arg is not type(None)))
    if origin is list:
        return f"a list, each {_takes(args[0])}"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "{" + ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) + "}"
    return _WORDS.get(origin or kind, "any value")
