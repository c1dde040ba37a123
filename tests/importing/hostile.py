"""500 tests for promptfoo, made from a seed: answers plain and hostile, and assertions about each."""

from __future__ import annotations

import json
import random
from typing import Any

CASES = 500
SEED = 15

_TEXTS = (
    "The capital of France is Paris.",
    "hello world",
    "HELLO World, hello again",
    "Ünïcödé größer Straße STRASSE",
    "서울은 대한민국의 수도입니다",
    "I cannot help with that.",
    "one two  three\tfour\nfive\r\nsix",
    "a\u00a0b\u2003c\u2028d\u2029e\ufefff\u3000g",
    "price: 12.50 EUR, total 1,234.00",
    "2026-11-23T16:00:00Z mail: jane.doe@example.org",
    '<script>alert("x")</script><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b[0m \x07 bell",
    "::error file=a.py,line=1::boom\n::set-output name=x::y",
    '=HYPERLINK("http://example.org","x")',
    "\u202eevil\u202c \u2066isolate\u2069 \u200bzero\u200dwidth",
    "{{7*7}} {% raw %} {{ input }} \\{{x}}",
    "# heading\n\n| a | b |\n| - | - |\n| `x` | **y** |\n",
    "emoji 😀👩‍👩‍👧 and 𝒳 math",
    "\\d+ [a-z] (group) a|b ^start$ {2,3} \\u0041",
    "trailing newline\n",
    " \t leading space",
    "x" * 3000,
    "aaaaaaaaaaaa!",
    "yes",
    "42",
    "-0",
    "null",
    "true",
    "1e999",
    "NaN",
    '{"a": 1, "b": [1, 2, {"c": null}]}',
    '{"b":[1,2,{"c":null}],"a":1.0}',
    '{"a": 1, "a": 2}',
    '{"a": 1,}',
    "[1, 2, 3]",
    '```json\n{"a": 1}\n```',
    'Here it is: {"a": 1} and more',
    '"just a string"',
    '{"text": "line\\nbreak \\ud83d\\ude00 \\u0000"}',
    " [] ",
    "\u00a0{}",
    "{'single': 'quotes'}",
    '{"n": 12345678901234567890}',
)
_PATTERNS = (
    *(r"^\w+", r"\d+", r"^\d{4}-\d{2}-\d{2}", r"[\w.]+@[\w.]+\.\w+", r"hello|HELLO", r"^.*$", r"^[\s\S]*$", r"\s{2,}"),
    *(r"\S+$", r"a.b", r"\bworld\b", r"\Bell", r"[^a-z]", r"^$", r"é|ö|ß", r"[가-힣]+", r"😀", r"^.{5}", r"x{1000}"),
    *(r"(a+)+$", r"(?<year>\d{4})", r"(?:one|two)\s+", r"\u0041", r"\x41", r"\.", r"\/", r"[.\-]", r"[[:alpha:]]"),
    *(
        r"a{,2}",
        r"{",
        r"}",
        r"]",
        r"\t",
        r"\r?\n",
        r"[^]",
        r"$",
        r"[\d\s]+$",
        r"[^\S\n]",
        r"[^\s]+",
        r"\A",
        r"\z",
        r"(?=x)",
    ),
    *(
        r"(?<!a)b",
        r"(a)\1",
        r"\p{L}",
        r"(",
        r"a**",
        r"[z-a]",
        r"(?i)hello",
        r"x{1001}",
        r"\cA",
        r"[\b]",
        r"\0",
        r"[\w-z]",
    ),
)
_WORDS = (
    "Paris",
    "hello",
    "HELLO",
    "the",
    "é",
    "ß",
    "SS",
    "K",
    "😀",
    "{",
    '"a"',
    "a, b",
    " ",
    "\n",
    "1",
    "수도",
    "<",
    "\\",
)
_SCHEMAS = (
    {"type": "object", "required": ["a"]},
    {"type": "array", "items": {"type": "number"}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 2}}},
    {"type": "string", "maxLength": 5},
)


def config() -> dict[str, Any]:
    """A configuration that promptfoo runs without a model: every test brings its answer."""
    chance = random.Random(SEED)
    tests = [_test(chance, number) for number in range(CASES)]
    return {"prompts": ["Say something."], "providers": ["echo"], "tests": tests}


def _test(chance: random.Random, number: int) -> dict[str, Any]:
    output = _output(chance)
    count = chance.randint(2, 6)
    asserts = [{**_assertion(chance, output), "metric": f"a{place}"} for place in range(count)]
    test: dict[str, Any] = {"description": f"case {number}", "providerOutput": output, "assert": asserts}
    if chance.random() < 0.2:
        test["threshold"] = chance.choice([0, 0.25, 0.5, 0.75, 1])
    if chance.random() < 0.3:
        for each in asserts:
            each["weight"] = chance.choice([0, 1, 2, 0.5])
    return test


def _output(chance: random.Random) -> str:
    text = chance.choice(_TEXTS)
    if chance.random() < 0.3:
        text = f"{text}{chance.choice([' ', chr(10), ''])}{chance.choice(_TEXTS)}"
    return text


def _part(chance: random.Random, output: str) -> str:
    """Something that is in the answer, as often as not."""
    if chance.random() < 0.4:
        return chance.choice(_WORDS)
    start = chance.randrange(len(output))
    part = output[start : start + chance.randint(1, 12)]
    if chance.random() < 0.3:
        part = part.swapcase()
    # Nunjucks would read these.
    return part.replace("{{", "(").replace("{%", "(").replace("{#", "(") or "x"


def _assertion(chance: random.Random, output: str) -> dict[str, Any]:
    kind = chance.choice(_KINDS)
    made: dict[str, Any] = {"type": kind}
    if kind in ("contains", "icontains", "starts-with"):
        made["value"] = (
            output[:5].replace("{{", "(") if kind == "starts-with" and chance.random() < 0.5 else _part(chance, output)
        )
    elif kind in ("contains-any", "contains-all", "icontains-any", "icontains-all"):
        parts = [_part(chance, output) for _ in range(chance.randint(1, 3))]
        made["value"] = (
            parts
            if chance.random() < 0.7
            else ", ".join(json.dumps(part) if "," in part else part for part in parts) + ", x"
        )
    elif kind == "equals":
        made["value"] = _wanted(chance, output)
    elif kind == "regex":
        made["value"] = chance.choice(_PATTERNS)
    elif kind in ("is-json", "contains-json") and chance.random() < 0.4:
        made["value"] = chance.choice(_SCHEMAS)
    elif kind == "word-count":
        count = len(output.split())
        made["value"] = chance.choice([count, {"min": count}, {"max": max(count - 1, 0)}, {"min": 1, "max": 10}])
    elif kind == "levenshtein":
        made |= {"value": _part(chance, output), "threshold": chance.choice([0, 3, len(output)])}
    if chance.random() < 0.25:
        made["type"] = f"not-{kind}"
    return made


_KINDS = (
    *("contains", "icontains", "starts-with", "contains-any", "contains-all", "icontains-any", "icontains-all"),
    *(
        "equals",
        "equals",
        "regex",
        "regex",
        "regex",
        "is-json",
        "is-json",
        "contains-json",
        "word-count",
        "is-refusal",
        "levenshtein",
    ),
)


def _wanted(chance: random.Random, output: str) -> Any:
    if chance.random() < 0.5:
        return output if "{{" not in output and "{%" not in output else "x"
    try:
        value = json.loads(output)
    except ValueError:
        return chance.choice(["yes", 42, True, 1.5, {"a": 1}, [1, 2, 3]])
    return value if value == value and value != float("inf") else 42
