"""1,000 answers from a seed, for holding imported checks against the tools themselves: what is hard about answers."""

from __future__ import annotations

import json
import random

COUNT = 1000
SEED = 20261127

_PLAIN = (
    *("Paris", "The capital of France is Paris.", "It is paris, I think.", "PARIS!", "London", "Paris or London", "42"),
    *("The answer is 42.", "the answer is 41", "answer is 42, not 24", "I counted: 40, 41, 42", "yes", "No.", "maybe"),
    *(
        "I cannot help with that.",
        "I'm sorry, but I can't assist with this.",
        "As an AI, I must decline.",
        "Sure! Paris.",
    ),
)
_UNICODE = (
    *("Straße", "STRASSE in Österreich", "Ünïcödé größer", "e\u0301te\u0301", "été", "ΣΊΣΥΦΟΣ σίσυφος", "İstanbul ı"),
    *("서울은 대한민국의 수도", "東京", "Привет, Париж", "שלום Paris", "\u202eevil\u202c", "👩‍👩‍👧 Paris 😀", "𝒳 = 42"),
    *("ﬁne ﬁle", "Ⅳ ² ½", "K\u212a", "a\u00adb", "\u200bParis\u200b", "n\u0303 ñ", "ẞ ß ss SS", "\U0001f1eb\U0001f1f7"),
)
_NUMBERS = (
    *("42", "-42", "+42", "42.0", "042", "4 2", "1,042", "42%", "$42", "42€", "4.2e1", "0x2A", "٤٢", "४२", "42nd"),
    *("about 42 or 43", "3.14159", "-0", "1e999", "NaN", "Infinity", "12345678901234567890", "0.1 + 0.2 = 0.3"),
    *("2026-11-27", "12:42:00", "192.168.0.42", "1/42", "#### 42", "#### -42", "total: 1.042,00", "42.", ".42"),
)
_JSON = (
    *('{"a": 1}', '{"a":1.0}', '{"a": "1"}', '{"a": 1, "b": [1, 2, {"c": null}]}', "[1, 2, 3]", "[]", "{}", "null"),
    *("true", '"Paris"', '{"name": "Paris", "score": 42}', '{"name": "paris", "score": "42"}', '{"name": null}'),
    *('{"name": ["Paris"], "score": 4.2}', '{"a": 1, "a": 2}', '{"a": 1,}', "{'a': 1}", '{"a": 1} {"b": 2}', "{a: 1}"),
    *(
        '```json\n{"a": 1}\n```',
        "```\n[1, 2, 3]\n```",
        'Here: {"name": "Paris"}',
        '{"a": 1}\n',
        ' \t{"a": 1}',
        "\u00a0{}",
    ),
    *(
        '{"t": "line\\nbreak \\u00e9 \\ud83d\\ude00"}',
        '{"n": 12345678901234567890}',
        '{"n": 1e400}',
        '{"a": {"b": {"c": 42}}}',
    ),
    *('{\n  "a": 1,\n  "list": [\n    "x",\n    "y"\n  ]\n}', '{"a": 1}}', '{"a"', "[1, 2", '{"": 1}', '{"é": "ü"}'),
)
_SPACE = (
    "",
    " ",
    "\n",
    "\t\t",
    "\r\n",
    "\u00a0",
    "\ufeff",
    "\u2028",
    "\u3000",
    " \n \t ",
    "\x0b\x0c",
    "\x1c",
    "\x85",
    "\u200b",
)
_MARKED = (
    *("**Paris**", "# Paris\n\n- one\n- two", "<b>Paris</b>", "`Paris`", "| a | b |\n| - | - |\n| 1 | 2 |", "> Paris"),
    *(
        "ANSWER: B",
        "answer: b",
        "**ANSWER: B**",
        "ANSWER: (B)",
        "ANSWER: A\nANSWER: B",
        "ANSWER: B because",
        "ANSWER:\nB",
    ),
    *(
        "ANSWER: Paris",
        "ANSWER:   Paris   \n",
        "Answer: Paris.",
        "\x1b[31mParis\x1b[0m \x07",
        "def f():\n    return 42",
    ),
    *(
        "SELECT * FROM cities WHERE name = 'Paris';",
        "https://example.org/Paris?x=42#y",
        "jane.doe@example.org",
        "'Paris'",
    ),
    *(
        "\\d+ [a-z] (x|y) ^$ {2,3} \\u0041",
        "{{7*7}} {% raw %}",
        "1. Paris\n2. Rome\n3. Oslo",
        "one\rtwo\r\nthree",
        "Paris\\n",
    ),
)
_GROUPS = (_PLAIN, _UNICODE, _NUMBERS, _JSON, _MARKED)


def outputs() -> list[str]:
    """The answers, no two of them equal: each of those above, then what chance makes of them."""
    chance = random.Random(SEED)
    made = dict.fromkeys([*_SPACE, *(text for group in _GROUPS for text in group)])
    while len(made) < COUNT:
        made.setdefault(_mixed(chance))
    return list(made)[:COUNT]


def _mixed(chance: random.Random) -> str:
    kind = chance.randrange(6)
    text = chance.choice(chance.choice(_GROUPS))
    if kind == 0:
        return f"{chance.choice(_SPACE)}{text}{chance.choice(_SPACE)}"
    if kind == 1:
        return f"{text}{chance.choice((' ', chr(10), ', ', ''))}{chance.choice(chance.choice(_GROUPS))}"
    if kind == 2:
        return json.dumps(_value(chance, 3), ensure_ascii=chance.random() < 0.5, indent=chance.choice((None, 2)))
    if kind == 3:
        number = f"{chance.choice(('', '-'))}{chance.randrange(100)}"
        return f"{number}{chance.choice(('', '.5', ',000', ' items', '%'))} {text}"
    if kind == 4:
        return " ".join(chance.choice(_PLAIN + _UNICODE) for _ in range(chance.randint(2, 40)))
    return "".join(chance.choice('aeiou PARIS42\n.,!{}[]":éß😀\t') for _ in range(chance.randint(1, 60)))


def _value(chance: random.Random, depth: int) -> object:
    plain = (1, 42, -7, 4.5, True, False, None, "Paris", "paris", "", "é", "42")
    kind = chance.randrange(4) if depth else 3
    if kind == 0:
        return [_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind in (1, 2):
        names = chance.sample(("a", "b", "name", "score", "items", "é"), chance.randrange(1, 5))
        return {name: _value(chance, depth - 1) for name in names}
    return chance.choice(plain)
