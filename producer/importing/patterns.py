"""Translate regular expressions of other languages to RE2, if one matches the same texts.

The grammar is that of ECMAScript (ECMA-262, section 22.2.1 with annex B) and of Python's `re`, as far as they agree
with RE2; the rest is refused with a reason, never approximated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from evalq.evalcore.evaluators.checks.check import COMPOSED, compile_check
from evalq.evalcore.evaluators.checks.vocabulary.declaring import BadCheck

Language = Literal["javascript", "python"]

_JS_SPACE = r"\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_PY_SPACE = r"\t\n\v\f\r\x1c-\x1f \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
_NOT_SPACE = {
    "javascript": r"\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}",
    "python": r"\x00-\x08\x0e-\x1b!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}",
}
_SPACE = {"javascript": _JS_SPACE, "python": _PY_SPACE}
_DOT = {"javascript": r"[^\n\r\x{2028}\x{2029}]", "python": r"[^\n]"}
_COUNT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_CONTROL = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f", "v": r"\v"}
_MOST = 1000
"""The most repetitions in RE2."""
_LONGEST = 10_000


class NoCounterpart(ValueError):
    """evalq has nothing equivalent; the message says why."""


def to_re2(pattern: str, language: Language) -> str:
    """Translate ``pattern`` of ``language``, without flags, to RE2. Raises NoCounterpart."""
    if len(pattern) > _LONGEST:
        raise NoCounterpart(f"longer than {_LONGEST} characters")
    return _PatternReader(pattern, language).whole()


class _PatternReader:
    def __init__(self, pattern: str, language: Language) -> None:
        self._text, self._language, self._at, self._depth = pattern, language, 0, 0
        self._out: list[str] = []
        # Whether the last element can be repeated.
        self._atom = False

    def whole(self) -> str:
        while self._at < len(self._text):
            self._next()
        if self._depth:
            raise NoCounterpart("a bracket is not closed")
        return "".join(self._out)

    def _next(self) -> None:
        sign = self._text[self._at]
        if sign == "\\":
            self._escape()
        elif sign == "[":
            self._set()
        elif sign == "(":
            self._open()
        elif sign in "*+?" or (sign == "{" and _COUNT.match(self._text, self._at)):
            self._repeat()
        else:
            self._plain(sign)

    def _plain(self, sign: str) -> None:
        self._at += 1
        if sign == ")":
            self._depth -= 1
            if self._depth < 0:
                raise NoCounterpart("a bracket closes that was not opened")
            self._emit(")", True)
        elif sign == ".":
            self._emit(_DOT[self._language], True)
        elif sign == "$" and self._language == "python":
            # Python's $ also matches before a final line feed.
            self._emit(r"\n?\z", False)
        elif sign in "^$|":
            self._emit(sign, False)
        else:
            self._emit(literal(sign), True)

    def _emit(self, text: str, atom: bool) -> None:
        self._out.append(text)
        self._atom = atom

    def _open(self) -> None:
        rest = self._text[self._at :]
        self._depth += 1
        named = re.match(r"\(\?P?<([A-Za-z_][A-Za-z0-9_]*)>", rest)
        if rest.startswith("(?:") or not rest.startswith("(?"):
            text = "(?:" if rest.startswith("(?:") else "("
            self._at += len(text)
        elif named and rest.startswith("(?P<") == (self._language == "python"):
            self._at += len(named[0])
            text = f"(?P<{named[1]}>"
        elif rest.startswith(("(?=", "(?!", "(?<=", "(?<!")):
            raise NoCounterpart("it looks ahead or behind, which no pattern in linear time does")
        else:
            raise NoCounterpart(f"{rest[:3]} is no group that both know")
        self._emit(text, False)

    def _repeat(self) -> None:
        if not self._atom:
            raise NoCounterpart("a repetition of nothing")
        counted = _COUNT.match(self._text, self._at) if self._text[self._at] == "{" else None
        if counted and max(int(number or 0) for number in counted.group(1, 3)) > _MOST:
            raise NoCounterpart(f"it repeats more than {_MOST} times")
        text = counted[0] if counted else self._text[self._at]
        self._at += len(text)
        if self._text[self._at : self._at + 1] == "?":
            text, self._at = f"{text}?", self._at + 1
        elif self._language == "python" and self._text[self._at : self._at + 1] == "+":
            raise NoCounterpart("it repeats without giving back, which no pattern in linear time does")
        self._emit(text, False)

    def _escape(self) -> None:
        text, atom = self._escaped(inside=False)
        self._emit(text, atom)

    def _escaped(self, *, inside: bool) -> tuple[str, bool]:
        """(text for RE2, whether it matches characters) of the escape here, in a set or outside."""
        sign = self._text[self._at + 1 : self._at + 2]
        if not sign:
            raise NoCounterpart("a backslash at its end")
        self._at += 2
        if sign in "dDwW":
            return self._class(sign, inside), True
        if sign in "sS":
            found = _SPACE[self._language] if sign == "s" else _NOT_SPACE[self._language]
            return (found if inside else f"[{found}]"), True
        if sign in "bB":
            if inside:
                return r"\x08", True
            return f"\\{sign}", False
        if sign in _CONTROL:
            return _CONTROL[sign], True
        return self._numbered(sign), True

    def _class(self, sign: str, inside: bool) -> str:
        """Digits and word characters: of ASCII in ECMAScript, of all Unicode in Python."""
        if self._language == "javascript":
            return f"\\{sign}"
        found = r"\p{Nd}" if sign in "dD" else r"\p{L}\p{N}_"
        if not inside:
            return f"[{'^' if sign in 'DW' else ''}{found}]"
        if sign in "DW":
            raise NoCounterpart(f"\\{sign} in a set has no counterpart in RE2")
        return found

    def _numbered(self, sign: str) -> str:
        """An escape of a character by its code, or the character itself."""
        digits = {"x": 2, "u": 4, "U": 8 if self._language == "python" else 0}.get(sign, 0)
        code = self._text[self._at : self._at + digits]
        if digits and len(code) == digits and re.fullmatch(r"[0-9A-Fa-f]+", code):
            self._at += digits
            return _code(int(code, 16))
        if sign == "0" and not self._text[self._at : self._at + 1].isdigit():
            return r"\x00"
        if sign.isdigit() or sign in "kc" or (sign.isalnum() and self._language == "python"):
            raise NoCounterpart(f"\\{sign} has no counterpart in RE2")
        # ECMAScript, annex B: an unknown escape is the character itself.
        return literal(sign)

    def _set(self) -> None:
        self._at += 1
        negated = self._text[self._at : self._at + 1] == "^"
        self._at += negated
        parts: list[str] = []
        first = True
        while True:
            sign = self._text[self._at : self._at + 1]
            if not sign:
                raise NoCounterpart("a set is not closed")
            if sign == "]" and not (first and self._language == "python"):
                break
            first = False
            parts.append(self._member(sign))
        self._at += 1
        if not parts:
            # ECMAScript: [] matches nothing, [^] everything.
            self._emit(r"[\x00-\x{10ffff}]" if negated else r"[^\x00-\x{10ffff}]", True)
            return
        self._emit(f"[{'^' if negated else ''}{''.join(parts)}]", True)

    def _member(self, sign: str) -> str:
        if sign == "\\":
            text, _ = self._escaped(inside=True)
            return text
        self._at += 1
        if sign == "-":
            wide = re.match(r"\\[sSdDwW]", self._text[self._at :]) or re.search(r"\\[sSdDwW]-$", self._text[: self._at])
            return r"\-" if wide else "-"
        return literal(sign)


def literal(sign: str) -> str:
    """A character that stands for itself. Raises NoCounterpart for half a surrogate pair."""
    if 0xD800 <= ord(sign) <= 0xDFFF:
        raise NoCounterpart("half a surrogate pair stands in it")
    return f"\\{sign}" if sign in r"\.+*?()|[]{}^$-&~#" else sign


def _code(number: int) -> str:
    if 0xD800 <= number <= 0xDFFF or number > 0x10FFFF:
        raise NoCounterpart("half a surrogate pair stands in it")
    return f"\\x{{{number:x}}}"


# Check imported checks by the vocabulary: a check that this version refuses is no counterpart.

_JUDGED = ("rubric", "factual", "score", "prefer")


def accepted(check: Mapping[str, Any]) -> None:
    """Raise NoCounterpart for a check that the evaluator would refuse."""
    try:
        reason = _refusal(msgspec.json.encode(check))
    except (msgspec.EncodeError, TypeError, RecursionError, UnicodeEncodeError) as error:
        raise NoCounterpart(f"its value is no plain data: {error}") from None
    if reason:
        raise NoCounterpart(reason)


@lru_cache(maxsize=4096)
def _refusal(written: bytes) -> str:
    try:
        compile_check(msgspec.json.decode(written))
    except (BadCheck, RecursionError) as error:
        return f"evalq refuses it: {str(error) or 'nested too deeply'}"
    return ""


def asks_judge(check: Any) -> bool:
    """Whether a judge decides the check, or a part of it."""
    if not isinstance(check, Mapping):
        return str(check).removeprefix("not-") in _JUDGED
    for key, value in check.items():
        name = str(key).removeprefix("not-")
        if name in _JUDGED or (name in COMPOSED and isinstance(value, list) and any(map(asks_judge, value))):
            return True
    return False
