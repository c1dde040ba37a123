"""`javascript` assertions that are one closed expression, as checks; no code is run.

Read is the part of ECMAScript's expressions (ECMA-262, section 13) that asks a text something a check asks, too:

    output.includes("x")    output.toLowerCase().startsWith("x")    output.trim() === "x"    output.length <= 80
    /x/i.test(output)       JSON.parse(output).a[0].b === 1         context.vars.name        !  &&  ||  ( )

Anything else has no counterpart: no part of an expression is left out, and nothing near it is taken.

A `transform`, what promptfoo makes of an answer before a check looks at it, is such an expression, too:

    JSON.parse(output).a[0].b    the check's `at`, of an answer that is JSON and has something there
    output.trim()                `trim` of equals; nothing for checks that look for a text anywhere
    output.toLowerCase()         `ignore-case`, where what is looked for has no capital letters
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evalq.producer.importing.patterns import NoCounterpart, to_re2

__all__ = ["Program", "check_of_program", "transformed"]

Check = dict[str, Any]

_LONGEST = 10_000
_DEEPEST = 50
_BEYOND = "its program is no closed expression of the parts that evalq has checks for"
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(r"===|!==|==|!=|<=|>=|&&|\|\||[<>!().\[\];]|[A-Za-z_$][\w$]*", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?![\w.])", re.ASCII)
_STRING = re.compile(r""" "((?:[^"\\\n]|\\.)*)" | '((?:[^'\\\n]|\\.)*)' | `((?:[^`\\$]|\\.)*)` """.strip(), re.VERBOSE)
_REGEX = re.compile(r"/((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([a-z]*)")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_METHODS = {"includes": "contains", "startsWith": "starts-with", "endsWith": "ends-with"}
_EQUAL, _UNEQUAL = ("===", "=="), ("!==", "!=")
_PARSED = re.compile(
    r"JSON\.parse\(output\)((?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\"\\\]]+'\]|\[\"[^'\"\\\]]+\"\])+)", re.ASCII
)
_CHANGED = re.compile(r"output((?:\.(?:trim|toLowerCase)\(\))+)")
_NEVER = re.compile(r"\.(?:length|constructor|__proto__)\b")
_TEXTS = ("equals", "contains", "contains-any", "contains-all")
_JUDGES = ("rubric", "factual", "score")
_PROGRAM = "it transforms the answer first, by a program"


class Program(NamedTuple):
    """The text of a program, and the variables of its test, which it has as context.vars."""

    text: str
    variables: Mapping[str, Any]


class _Literal(NamedTuple):
    value: Any


class _Answer(NamedTuple):
    """`output`, after toLowerCase() or trim() where that was called."""

    lower: bool = False
    trim: bool = False


class _Length(NamedTuple):
    """`output.length`."""


class _Parsed(NamedTuple):
    """A path in JSON.parse(output)."""

    path: str


class _Test(NamedTuple):
    """Something that is true or false; ``parses`` says that it throws, and so fails, where the answer is no JSON."""

    check: Check
    parses: bool = False


def check_of_program(program: Program, *, negated: bool) -> Check:
    """The check that an expression is; ``negated`` says that promptfoo takes its opposite. Raises NoCounterpart."""
    text = program.text.strip()
    if len(text) > _LONGEST:
        raise NoCounterpart("its program is too long to be read")
    text = re.sub(r"^return\b", "", text).rstrip("; \t\r\n")
    reader = _Reader(text, program.variables)
    made = reader.whole()
    if made.parses and negated:
        # What throws fails there, whether it is asked for or its opposite.
        raise NoCounterpart("the opposite of a program that fails where the answer is no JSON")
    return {"all": [{"is-json": True}, made.check]} if made.parses else made.check


class _Reader:
    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        self._text, self._at, self._variables, self._depth = text, 0, variables, 0

    def whole(self) -> _Test:
        made = self._test(self._either())
        if self._at < len(self._text):
            raise NoCounterpart(_BEYOND)
        return made

    def _either(self) -> Any:
        return self._joined("||", "any", lambda: self._joined("&&", "all", self._compared))

    def _joined(self, sign: str, name: str, part: Callable[[], Any]) -> Any:
        first = part()
        if self._peek() != sign:
            return first
        parts = [self._test(first)]
        while self._took(sign):
            parts.append(self._test(part()))
        parses = any(each.parses for each in parts)
        if parses and name == "any":
            raise NoCounterpart("it parses the answer in one of several alternatives, where it fails without JSON")
        return _Test({name: [each.check for each in parts]}, parses)

    def _compared(self) -> Any:
        left = self._unary()
        sign = self._peek()
        if sign not in (*_EQUAL, *_UNEQUAL, *_FLIPPED):
            return left
        self._took(sign)
        right = self._unary()
        if isinstance(left, _Literal):
            left, right, sign = right, left, _FLIPPED.get(sign, sign)
        if not isinstance(right, _Literal):
            raise NoCounterpart(_BEYOND)
        return _comparison(left, sign, right.value)

    def _unary(self) -> Any:
        if not self._took("!"):
            return self._value()
        self._deeper()
        made = self._test(self._unary())
        self._depth -= 1
        if made.parses:
            raise NoCounterpart("the opposite of a program that fails where the answer is no JSON")
        return _Test(_opposite(made.check))

    def _value(self) -> Any:
        if self._took("("):
            self._deeper()
            made = self._either()
            self._need(")")
            self._depth -= 1
            return made
        for pattern, make in ((_NUMBER, _number), (_STRING, _string)):
            found = self._match(pattern)
            if found:
                return _Literal(make(found))
        found = self._match(_REGEX)
        if found:
            return self._tested(found[1], found[2])
        word = self._peek()
        self._took(word)
        if word in _WORDS:
            return _Literal(_WORDS[word])
        if word == "context":
            return self._variable()
        if word == "output":
            return self._of_answer(_Answer())
        if word == "JSON":
            for each in (".", "parse", "(", "output", ")"):
                self._need(each)
            return _Parsed(self._path())
        raise NoCounterpart(_BEYOND)

    def _of_answer(self, answer: _Answer) -> Any:
        while self._took("."):
            name = self._peek()
            self._took(name)
            if name == "length" and answer == _Answer():
                return _Length()
            self._need("(")
            if name in _METHODS:
                made = self._method(_METHODS[name], answer)
                self._need(")")
                return made
            self._need(")")
            if name == "toLowerCase":
                answer = answer._replace(lower=True)
            elif name == "trim":
                answer = answer._replace(trim=True)
            else:
                raise NoCounterpart(_BEYOND)
        return answer

    def _method(self, name: str, answer: _Answer) -> _Test:
        argument = self._value()
        if not isinstance(argument, _Literal) or not isinstance(argument.value, str) or answer.trim:
            raise NoCounterpart(_BEYOND)
        return _Test({name: argument.value, **_lowered(answer, argument.value)})

    def _tested(self, pattern: str, flags: str) -> _Test:
        for each in (".", "test", "(", "output"):
            self._need(each)
        answer = self._of_answer(_Answer())
        self._need(")")
        if answer != _Answer() or set(flags) - {"i", "g"} or len(set(flags)) < len(flags):
            raise NoCounterpart(_BEYOND)
        return _Test({"regex": to_re2(pattern, "javascript")} | ({"ignore-case": True} if "i" in flags else {}))

    def _path(self) -> str:
        path = "$"
        while (sign := self._peek()) in (".", "["):
            self._took(sign)
            if sign == ".":
                name = self._peek()
                if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in ("length", "constructor", "__proto__"):
                    raise NoCounterpart(_BEYOND)
                self._took(name)
                path += f".{name}"
                if self._peek() == "(":
                    raise NoCounterpart(_BEYOND)
                continue
            found = self._match(_NUMBER)
            if not found or not found[0].isdigit():
                raise NoCounterpart(_BEYOND)
            path += f"[{found[0]}]"
            self._need("]")
        if path == "$":
            raise NoCounterpart(_BEYOND)
        return path

    def _variable(self) -> _Literal:
        for each in (".", "vars", "."):
            self._need(each)
        name = self._peek()
        self._took(name)
        value = self._variables.get(name)
        if not isinstance(value, str | int | float | bool) or self._peek() in (".", "[", "("):
            raise NoCounterpart(_BEYOND)
        return _Literal(value)

    def _test(self, made: Any) -> _Test:
        if not isinstance(made, _Test):
            raise NoCounterpart(_BEYOND)
        return made

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NoCounterpart("its program nests too deeply to be read")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _peek(self) -> str:
        self._skip()
        found = _TOKEN.match(self._text, self._at)
        return found[0] if found else ""

    def _took(self, sign: str) -> bool:
        if not sign or self._peek() != sign:
            return False
        self._at += len(sign)
        return True

    def _need(self, sign: str) -> None:
        if not self._took(sign):
            raise NoCounterpart(_BEYOND)


def _comparison(left: Any, sign: str, wanted: Any) -> _Test:
    if isinstance(left, _Length):
        return _Test(_of_length(sign, wanted))
    if isinstance(left, _Answer) and isinstance(wanted, str) and sign in (*_EQUAL, *_UNEQUAL):
        check = {"equals": wanted, **_lowered(left, wanted), **({"trim": True} if left.trim else {})}
        if left.trim and wanted != wanted.strip():
            raise NoCounterpart(_BEYOND)
        return _Test(_opposite(check) if sign in _UNEQUAL else check)
    # == converts, and a path that leads nowhere is unequal to anything.
    if isinstance(left, _Parsed) and sign == "===":
        return _Test({"json-path": left.path, "is": wanted}, parses=True)
    raise NoCounterpart(_BEYOND)


def _of_length(sign: str, wanted: Any) -> Check:
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
        raise NoCounterpart(_BEYOND)
    if sign in ("<", "<="):
        most = wanted - (sign == "<")
        if most < 0:
            raise NoCounterpart("no answer is shorter than nothing")
        return {"max-length": most}
    if sign in (">", ">="):
        return {"min-length": wanted + (sign == ">")}
    check: Check = {"all": [{"min-length": wanted}, {"max-length": wanted}]}
    return _opposite(check) if sign in _UNEQUAL else check


def _lowered(answer: _Answer, wanted: str) -> Check:
    if not answer.lower:
        return {}
    if wanted != wanted.lower():
        raise NoCounterpart("a text in lower case never has the capital letters that it looks for")
    return {"ignore-case": True}


def _opposite(check: Check) -> Check:
    """The check with `not-` before its name, or without it."""
    name, *rest = check
    other = name.removeprefix("not-") if name.startswith("not-") else f"not-{name}"
    return {other: check[name], **{key: check[key] for key in rest}}


def _number(found: re.Match[str]) -> int | float:
    value = float(found[0])
    return int(value) if value.is_integer() else value


def _string(found: re.Match[str]) -> str:
    def put(match: re.Match[str]) -> str:
        if match[1][0] in "ux" and len(match[1]) > 1:
            return chr(int(match[1][1:], 16))
        if match[1] not in _ESCAPED:
            raise NoCounterpart(_BEYOND)
        return _ESCAPED[match[1]]

    return _ESCAPE.sub(put, next(group for group in found.groups() if group is not None))


def transformed(check: Check, program: Any) -> Check:
    """``check`` of what ``program`` makes of the answer; itself where there is none. Raises NoCounterpart."""
    if program in (None, ""):
        return check
    if not isinstance(program, str):
        raise NoCounterpart(_PROGRAM)
    text = re.sub(r"^return\b", "", program.strip()).strip().rstrip("; \t\r\n")
    parsed = _PARSED.fullmatch(text)
    if parsed and not _NEVER.search(parsed[1]):
        path = f"${parsed[1]}"
        # promptfoo's test fails where the answer is no JSON, and where nothing (or null) is there.
        there: list[Check] = [{"is-json": True}, {"not-json-path": path, "is": None}]
        return {"all": [*there, {**check, "at": path}]}
    changed = _CHANGED.fullmatch(text)
    if changed is None:
        raise NoCounterpart(_PROGRAM)
    return _changed(check, trim="trim" in changed[1], lower="toLowerCase" in changed[1])


def _changed(check: Mapping[str, Any], *, trim: bool, lower: bool) -> Check:
    name = next(iter(check))
    kind, value = name.removeprefix("not-"), check[name]
    if kind in _JUDGES and not lower:
        return dict(check)
    texts = value if isinstance(value, list) else [value]
    if kind not in _TEXTS or not all(isinstance(each, str) for each in texts):
        raise NoCounterpart(_PROGRAM)
    if trim and any(each != each.strip() for each in texts):
        raise NoCounterpart("it takes white space off the answer, and looks for a text with white space around it")
    if lower and any(each != each.lower() for each in texts):
        raise NoCounterpart("a text in lower case never has the capital letters that it looks for")
    made = dict(check)
    if trim and kind == "equals":
        made["trim"] = True
    return made | ({"ignore-case": True} if lower else {})
