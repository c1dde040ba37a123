"""promptfoo's `javascript` assertions as checks, if they are one closed expression; no code is run.

The parser reads the part of ECMAScript's expressions (ECMA-262, section 13) for which evalq has checks:

    output.includes("x")    output.toLowerCase().startsWith("x")    output.trim() === "x"    output.length <= 80
    /x/i.test(output)       JSON.parse(output).a[0].b === 1         context.vars.name        !  &&  ||  ( )
    output.split(" ").length < 9      JSON.parse(output).a.includes("x")      output.a === 1      ... ? 1 : 0

Any other expression has no counterpart. The import never leaves out a part of an expression, and never approximates.

A `transform`, which promptfoo applies to an answer before its checks, can be such an expression, too:

    JSON.parse(output).a[0].b    becomes the check's `at`, which needs a value at that path
    output.trim()                becomes `trim` of equals; checks that search for a text need nothing
    output.toLowerCase()         becomes `ignore-case`, if the text that the check looks for has no capital letters
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from evalq.evalcore.records.json_values import parse_path
from evalq.producer.importing.patterns import NoCounterpart, to_re2

Check = dict[str, Any]

_LONGEST = 10_000
_DEEPEST = 50
_BEYOND = "its program is no closed expression of the parts that evalq has checks for"
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(r"===|!==|==|!=|<=|>=|&&|\|\||[<>!().\[\];?:]|[A-Za-z_$][\w$]*", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?![\w.])", re.ASCII)
_STRING = re.compile(r""" "((?:[^"\\\n]|\\.)*)" | '((?:[^'\\\n]|\\.)*)' | `((?:[^`\\$]|\\.)*)` """.strip(), re.VERBOSE)
_REGEX = re.compile(r"/((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/([a-z]*)")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "/": "/"}
_WORDS = {"true": True, "false": False, "null": None}
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_METHODS = {"includes": "contains", "startsWith": "starts-with", "endsWith": "ends-with"}
_OUTCOMES = {(1, 0): True, (0, 1): False}
"""The values behind `?` and `:` (true and false equal 1 and 0), and whether the first one is a pass."""
_SEPARATORS = {" ": " ", "\n": r"\n", r"\s+": r"\s+"}
_OBJECT = "evalq reads the answer's JSON for it; promptfoo's provider has to give an object"
_NUMERIC = "evalq compares numbers alone; JavaScript takes a text that is one, too"
_SHORTER = re.compile(r"[1-9]\d{0,5} ?/ ?(?:output\.length|\( ?output\.length ?\+ ?\d{1,6} ?\))")
_EQUAL, _UNEQUAL = ("===", "=="), ("!==", "!=")
_PARSED = re.compile(
    r"JSON\.parse\(output\)((?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\"\\\]]+'\]|\[\"[^'\"\\\]]+\"\])+)", re.ASCII
)
_CHANGED = re.compile(r"output((?:\.(?:trim|toLowerCase)\(\))+)")
_NEVER = re.compile(r"\.(?:length|constructor|__proto__)\b")
_TEXTS = ("equals", "contains", "contains-any", "contains-all")
_JUDGES = ("rubric", "factual", "score")
_PROGRAM = "it transforms the answer first, by a program"


class AlwaysPasses(ValueError):
    """A program that scores every answer above 0, which promptfoo counts as a pass."""


class Program(NamedTuple):
    """The text of a program, and the variables of its test, which the program sees as context.vars."""

    text: str
    variables: Mapping[str, Any]


class _Literal(NamedTuple):
    value: Any


class _JavaScriptAnswer(NamedTuple):
    """`output`, or the value at a path in it, after toLowerCase() or trim() if the program calls them.

    ``parsed``: the path starts at JSON.parse(output), and not at an output that is an object already.
    """

    lower: bool = False
    trim: bool = False
    path: str = ""
    parsed: bool = False

    @property
    def guards(self) -> tuple[Check, ...]:
        """Checks that must pass, or the program throws."""
        return ({"is-json": True},) if self.parsed else ()

    @property
    def at(self) -> Check:
        return {"at": self.path} if self.path else {}


class _Length(NamedTuple):
    """`.length` of a text."""

    of: _JavaScriptAnswer


class _Pieces(NamedTuple):
    """`.split(separator).length` of a text."""

    of: _JavaScriptAnswer
    separator: str


class _Test(NamedTuple):
    """A condition as a check. If one of ``guards`` fails, the program throws, so the assertion fails.

    That holds for ``also``, too; but then ``check`` itself fails as well, so only its negation needs these guards.
    """

    check: Check
    guards: tuple[Check, ...] = ()
    also: tuple[Check, ...] = ()


def check_of_program(program: Program, *, negated: bool) -> tuple[Check, str]:
    """(the check for a program, how it differs from promptfoo's); ``negated`` means that promptfoo negates the program.

    Raises NoCounterpart, or AlwaysPasses.
    """
    text = program.text.strip()
    if len(text) > _LONGEST:
        raise NoCounterpart("its program is too long to be read")
    text = re.sub(r"^return\b", "", text).rstrip("; \t\r\n")
    if _SHORTER.fullmatch(text.strip()) and not negated:
        raise AlwaysPasses(
            "its score is higher for shorter answers, and every answer passes: evalq keeps verdicts alone"
        )
    reader = _JavaScriptReader(text, program.variables)
    made = reader.whole()
    if made.guards and negated:
        # A program that throws fails in promptfoo, negated or not.
        raise NoCounterpart("the opposite of a program that fails where the answer is not what it reads")
    check = {"all": [*_once(made.guards), made.check]} if made.guards else made.check
    return check, "; ".join(sorted(reader.differs))


def _once(guards: tuple[Check, ...]) -> list[Check]:
    return [guard for index, guard in enumerate(guards) if guard not in guards[:index]]


class _JavaScriptReader:
    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        self._text, self._at, self._variables, self._depth = text, 0, variables, 0
        self.differs: set[str] = set()

    def whole(self) -> _Test:
        made = self._chosen(self._test(self._either()))
        if self._at < len(self._text):
            raise NoCounterpart(_BEYOND)
        return made

    def _chosen(self, made: _Test) -> _Test:
        """The test, after reading an optional `? 1 : 0` behind it."""
        if not self._took("?"):
            return made
        first = self._value()
        self._need(":")
        second = self._value()
        if not isinstance(first, _Literal) or not isinstance(second, _Literal):
            raise NoCounterpart(_BEYOND)
        passes = _OUTCOMES.get((first.value, second.value))
        if passes is None:
            raise NoCounterpart("its program gives a score, not a verdict")
        return made if passes else _turned(made)

    def _either(self) -> Any:
        return self._joined("||", "any", lambda: self._joined("&&", "all", self._compared))

    def _joined(self, sign: str, name: str, part: Callable[[], Any]) -> Any:
        first = part()
        if self._peek() != sign:
            return first
        parts = [self._test(first)]
        while self._took(sign):
            parts.append(self._test(part()))
        guards = tuple(guard for each in parts for guard in each.guards)
        if guards and name == "any":
            raise NoCounterpart("it parses the answer in one of several alternatives, where it fails without JSON")
        also = tuple(guard for each in parts for guard in each.also)
        return _Test({name: [each.check for each in parts]}, guards, also)

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
        if isinstance(left, _JavaScriptAnswer) and left.path:
            self.differs |= {_NUMERIC} if sign in _FLIPPED else set()
        return _comparison(left, sign, right.value)

    def _unary(self) -> Any:
        if not self._took("!"):
            return self._value()
        self._deeper()
        made = self._test(self._unary())
        self._depth -= 1
        return _turned(made)

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
            return self._of_answer(_JavaScriptAnswer())
        if word == "JSON":
            for each in (".", "parse", "(", "output", ")"):
                self._need(each)
            if self._peek() not in (".", "["):
                raise NoCounterpart(_BEYOND)
            return self._of_answer(_JavaScriptAnswer(path="$", parsed=True))
        raise NoCounterpart(_BEYOND)

    def _of_answer(self, answer: _JavaScriptAnswer) -> Any:
        while (sign := self._peek()) in (".", "["):
            self._took(sign)
            if sign == "[":
                answer = self._member(answer, self._index())
                continue
            name = self._peek()
            self._took(name)
            if name == "length":
                return _Length(answer)
            if self._peek() != "(":
                if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or name in ("constructor", "__proto__"):
                    raise NoCounterpart(_BEYOND)
                answer = self._member(answer, f".{name}")
                continue
            self._took("(")
            if name == "split":
                return self._pieces(answer)
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

    def _index(self) -> str:
        found = self._match(_NUMBER)
        if not found or not found[0].isdigit():
            raise NoCounterpart(_BEYOND)
        self._need("]")
        return f"[{found[0]}]"

    def _member(self, answer: _JavaScriptAnswer, step: str) -> _JavaScriptAnswer:
        """The value one step further. After toLowerCase() or trim() it is a text, whose members no check reads."""
        if answer.lower or answer.trim:
            raise NoCounterpart(_BEYOND)
        if not answer.path:
            self.differs.add(_OBJECT)
        return answer._replace(path=f"{answer.path or '$'}{step}")

    def _pieces(self, answer: _JavaScriptAnswer) -> _Pieces:
        found = self._match(_STRING)
        separator = _string(found) if found else ""
        if not found:
            pattern = self._match(_REGEX)
            separator = pattern[1] if pattern and not pattern[2] else ""
        self._need(")")
        self._need(".")
        self._need("length")
        if separator not in _SEPARATORS or answer.lower or answer.path:
            raise NoCounterpart(_BEYOND)
        return _Pieces(answer, _SEPARATORS[separator])

    def _method(self, name: str, answer: _JavaScriptAnswer) -> _Test:
        argument = self._value()
        if not isinstance(argument, _Literal) or not isinstance(argument.value, str) or answer.trim:
            raise NoCounterpart(_BEYOND)
        check = {name: argument.value, **lowered(answer.lower, argument.value), **answer.at}
        if not answer.path or name != "contains" or answer.lower:
            return _Test(check, (*answer.guards, *_text_at(answer)))
        # For an array, includes() looks for an equal value.
        text, one = _schema_at(answer, {"type": "string"}), {"type": "array", "contains": {"const": argument.value}}
        guard = _schema_at(answer, {"type": ["string", "array"]})
        return _Test({"any": [{"all": [text, check]}, _schema_at(answer, one)]}, (*answer.guards, guard))

    def _tested(self, pattern: str, flags: str) -> _Test:
        for each in (".", "test", "("):
            self._need(each)
        answer = self._value()
        self._need(")")
        if not isinstance(answer, _JavaScriptAnswer) or answer.lower or answer.trim:
            raise NoCounterpart(_BEYOND)
        if set(flags) - {"i", "g"} or len(set(flags)) < len(flags):
            raise NoCounterpart(_BEYOND)
        check = {"regex": to_re2(pattern, "javascript"), **({"ignore-case": True} if "i" in flags else {}), **answer.at}
        return _Test(check, (*answer.guards, *_text_at(answer)))

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


def _text_at(answer: _JavaScriptAnswer) -> tuple[Check, ...]:
    """A guard that the value at the answer's path is a text, because methods of texts throw for other values."""
    return (_schema_at(answer, {"type": "string"}),) if answer.path else ()


def _schema_at(answer: _JavaScriptAnswer, schema: dict[str, Any]) -> Check:
    """A check that the value at the answer's path matches the JSON Schema ``schema``."""
    for step in reversed(parse_path(answer.path)):
        if isinstance(step, int):
            raise NoCounterpart(_BEYOND)
        schema = {"type": "object", "required": [step], "properties": {step: schema}}
    return {"json-schema": schema}


def _above(answer: _JavaScriptAnswer) -> tuple[Check, ...]:
    """Guards that all values above the answer's path exist and are not null: reading a member of null throws."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in parse_path(answer.path)[:-1]]
    paths = ["$" + "".join(steps[: count + 1]) for count in range(len(steps))]
    there: list[Check] = [{"json-schema": {"not": {"type": "null"}}}]
    for path in paths:
        there += [{"json-path": path}, {"not-json-path": path, "is": None}]
    return tuple(there)


def _turned(made: _Test) -> _Test:
    return _Test(opposite(made.check), (*made.guards, *made.also))


def _comparison(left: Any, sign: str, wanted: Any) -> _Test:
    if isinstance(left, _Length):
        return _of_length(left.of, sign, wanted)
    if isinstance(left, _Pieces):
        return _Test(_of_pieces(left, sign, wanted))
    if not isinstance(left, _JavaScriptAnswer):
        raise NoCounterpart(_BEYOND)
    if not left.path and isinstance(wanted, str) and sign in (*_EQUAL, *_UNEQUAL):
        check = {"equals": wanted, **lowered(left.lower, wanted), **({"trim": True} if left.trim else {})}
        if left.trim and wanted != wanted.strip():
            raise NoCounterpart(_BEYOND)
        return _Test(opposite(check) if sign in _UNEQUAL else check)
    if left.path and (left.lower or left.trim):
        return _of_text_at(left, sign, wanted)
    # Only ===: == converts types. Not !==: it is true for a path that does not exist, where a check fails.
    if left.path and sign == "===":
        return _Test({"json-path": left.path, "is": wanted}, left.guards, _above(left))
    if left.path and sign in _FLIPPED and isinstance(wanted, int | float) and not isinstance(wanted, bool):
        bound: Check = {"json-path": left.path, "min" if sign[0] == ">" else "max": wanted}
        if len(sign) == 1:
            bound = {"all": [bound, {"not-json-path": left.path, "is": wanted}]}
        return _Test(bound, left.guards, _above(left))
    raise NoCounterpart(_BEYOND)


def _of_text_at(left: _JavaScriptAnswer, sign: str, wanted: Any) -> _Test:
    """The comparison of a text at a path, lowered or trimmed, with ``wanted``."""
    if not isinstance(wanted, str) or sign not in (*_EQUAL, *_UNEQUAL) or (left.trim and wanted != wanted.strip()):
        raise NoCounterpart(_BEYOND)
    check = {"equals": wanted, **lowered(left.lower, wanted), **({"trim": True} if left.trim else {}), **left.at}
    return _Test(opposite(check) if sign in _UNEQUAL else check, (*left.guards, *_text_at(left)))


def _bounds(sign: str, wanted: Any) -> tuple[int | None, int | None]:
    """(least, most) of the counts for which the comparison is true; None means no bound. Raises NoCounterpart."""
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
        raise NoCounterpart(_BEYOND)
    if sign in ("<", "<="):
        most = wanted - (sign == "<")
        if most < 0:
            raise NoCounterpart("no answer is shorter than nothing")
        return None, most
    if sign in (">", ">="):
        return wanted + (sign == ">"), None
    return wanted, wanted


def _of_length(answer: _JavaScriptAnswer, sign: str, wanted: Any) -> _Test:
    least, most = _bounds(sign, wanted)
    if answer.trim and not answer.path and (least, most) in ((1, None), (0, 0)):
        # A trimmed length above 0 means: some character is not white space.
        check: Check = {"regex": to_re2(r"\S", "javascript")}
        return _Test(opposite(check) if (least == 0) != (sign in _UNEQUAL) else check)
    if answer.trim or answer.lower:
        raise NoCounterpart(_BEYOND)
    check = _sized(least, most, answer.at)
    guards: tuple[Check, ...] = ()
    if answer.path:
        # An array's length is its number of values; a number has no length, and null throws.
        many = _schema_at(answer, {"type": "array"} | ({} if least is None else {"minItems": least})
                     | ({} if most is None else {"maxItems": most}))  # fmt: skip
        check = {"any": [{"all": [_schema_at(answer, {"type": "string"}), check]}, many]}
        guards = (*answer.guards, {"json-path": answer.path}, {"not-json-path": answer.path, "is": None})
    return _Test(opposite(check) if sign in _UNEQUAL else check, guards)


def _sized(least: int | None, most: int | None, at: Check) -> Check:
    parts: list[Check] = [{"min-length": least, **at}] if least is not None else []
    parts += [{"max-length": most, **at}] if most is not None else []
    return parts[0] if len(parts) == 1 else {"all": parts}


def _of_pieces(pieces: _Pieces, sign: str, wanted: Any) -> Check:
    """A pattern that counts separators: a text has one piece more than separators."""
    least, most = _bounds(sign, wanted)
    low, high = max(least or 1, 1) - 1, "" if most is None else most - 1
    if high == -1 or (high == "" and low == 0):
        raise NoCounterpart("every text has a piece at least")
    separator = pieces.separator
    piece = r"\S" if separator == r"\s+" else f"[^{separator}]"
    if pieces.of.trim:
        if separator != r"\s+":
            raise NoCounterpart(_BEYOND)
        rest = rf"\S+(?:\s+\S+){{{low},{high}}}"
        pattern = rf"^\s*(?:{rest})?\s*$" if low == 0 else rf"^\s*{rest}\s*$"
    else:
        pattern = rf"^{piece}*(?:{separator}{piece}*){{{low},{high}}}$"
    check: Check = {"regex": to_re2(pattern, "javascript")}
    return opposite(check) if sign in _UNEQUAL else check


def lowered(lower: bool, wanted: str) -> Check:
    """The option for a check that compares with ``wanted``, if the program puts the answer in ``lower`` case first.

    Raises NoCounterpart if ``wanted`` has capital letters, because no answer can match it then.
    """
    if not lower:
        return {}
    if wanted != wanted.lower():
        raise NoCounterpart("a text in lower case never has the capital letters that it looks for")
    return {"ignore-case": True}


def opposite(check: Check) -> Check:
    """The negated check: with `not-` before its name, or without it if it has one."""
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
    """``check`` applied to the answer after the transform ``program``; ``check`` itself without a program.

    Raises NoCounterpart.
    """
    if program in (None, ""):
        return check
    if not isinstance(program, str):
        raise NoCounterpart(_PROGRAM)
    text = re.sub(r"^return\b", "", program.strip()).strip().rstrip("; \t\r\n")
    parsed = _PARSED.fullmatch(text)
    if parsed and not _NEVER.search(parsed[1]):
        path = f"${parsed[1]}"
        # promptfoo's test fails if the answer is not JSON, and if there is no value or null at the path.
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
