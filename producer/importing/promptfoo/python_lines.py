"""`python` assertions that are one closed expression, as checks; the text is parsed, and nothing of it is run.

    "x" in output                    output.strip() == "x"       output.lower().startswith("x")
    len(output) <= 80                3 < len(output.split())     len(output.splitlines()) == 1
    any(w in output for w in ["a", "b"])     context["vars"]["name"]     not  and  or  ( )

Anything else has no counterpart: no part of an expression is left out, and nothing near it is taken.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from evalq.producer.importing.patterns import NoCounterpart
from evalq.producer.importing.promptfoo.javascript import Check, lowered, opposite

_LONGEST = 2_000
_BEYOND = "its program is no closed expression of the parts that evalq has checks for"
_ENDS = {"startswith": "starts-with", "endswith": "ends-with"}
_UNITS = {"split": "words", "splitlines": "lines"}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


class _PythonAnswer(NamedTuple):
    """`output`, after lower() or strip() where that was called."""

    lower: bool = False
    strip: bool = False


def check_of_python(text: str, variables: Mapping[str, Any]) -> Check:
    """The check of an expression. Raises NoCounterpart."""
    text = text.strip().removeprefix("return ").strip()
    if len(text) > _LONGEST:
        raise NoCounterpart("its program is too long to be read")
    try:
        with warnings.catch_warnings():
            # Of escapes that Python deprecates.
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NoCounterpart(_BEYOND) from None
    try:
        return _PythonReader(variables).test(tree.body)
    except RecursionError:
        raise NoCounterpart("its program nests too deeply to be read") from None


class _PythonReader:
    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables

    def test(self, node: ast.expr) -> Check:
        """A check of what is True or False. Raises NoCounterpart."""
        if isinstance(node, ast.BoolOp):
            return {"all" if isinstance(node.op, ast.And) else "any": [self.test(each) for each in node.values]}
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return opposite(self.test(node.operand))
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [self._compare(sides[at], op, sides[at + 1]) for at, op in enumerate(node.ops)]
            return parts[0] if len(parts) == 1 else {"all": parts}
        if isinstance(node, ast.Call) and not node.keywords and len(node.args) == 1:
            if isinstance(node.func, ast.Attribute) and node.func.attr in _ENDS:
                answer, wanted = self._answer(node.func.value), self._text(node.args[0])
                return self._search_check(_ENDS[node.func.attr], answer, wanted)
            if isinstance(node.func, ast.Name) and node.func.id in ("any", "all"):
                return self._of_each(node.func.id, node.args[0])
        raise NoCounterpart(_BEYOND)

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Check:
        if isinstance(op, ast.In | ast.NotIn):
            check = self._search_check("contains", self._answer(right), self._text(left))
            return check if isinstance(op, ast.In) else opposite(check)
        turned = _TURNED.get(type(op))
        if turned is None:
            raise NoCounterpart(_BEYOND)
        if isinstance(left, ast.Constant):
            return self._comparison_check(right, turned(), left)
        return self._comparison_check(left, op, right)

    def _comparison_check(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Check:
        """The answer, or a length of it, beside a value."""
        if isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "len":
            return self._length_check(left, op, right)
        if not isinstance(op, ast.Eq | ast.NotEq):
            raise NoCounterpart(_BEYOND)
        answer, wanted = self._answer(left), self._text(right, empty=True)
        if answer.strip and wanted != wanted.strip():
            raise NoCounterpart(_BEYOND)
        check = {"equals": wanted, **lowered(answer.lower, wanted), **({"trim": True} if answer.strip else {})}
        return check if isinstance(op, ast.Eq) else opposite(check)

    def _length_check(self, call: ast.Call, op: ast.cmpop, right: ast.expr) -> Check:
        """`len(...)` beside a number."""
        wanted = right.value if isinstance(right, ast.Constant) else None
        if type(wanted) is not int or wanted < 0 or len(call.args) != 1 or call.keywords:
            raise NoCounterpart(_BEYOND)
        counted: ast.expr = call.args[0]
        unit = ""
        method = counted.func if isinstance(counted, ast.Call) else None
        if isinstance(counted, ast.Call) and isinstance(method, ast.Attribute) and method.attr in _UNITS:
            if counted.args or counted.keywords:
                raise NoCounterpart(_BEYOND)
            counted, unit = method.value, _UNITS[method.attr]
        answer = self._answer(counted)
        # White space around it changes no count of words.
        if answer.lower or (answer.strip and unit != "words"):
            raise NoCounterpart(_BEYOND)
        least = wanted + isinstance(op, ast.Gt) if isinstance(op, ast.Gt | ast.GtE | ast.Eq | ast.NotEq) else None
        most = wanted - isinstance(op, ast.Lt) if isinstance(op, ast.Lt | ast.LtE | ast.Eq | ast.NotEq) else None
        if most is not None and most < 0:
            raise NoCounterpart("no answer is shorter than nothing")
        in_unit = {"unit": unit} if unit else {}
        parts: list[Check] = [{"min-length": least, **in_unit}] if least is not None else []
        parts += [{"max-length": most, **in_unit}] if most is not None else []
        check = parts[0] if len(parts) == 1 else {"all": parts}
        return opposite(check) if isinstance(op, ast.NotEq) else check

    def _of_each(self, kind: str, node: ast.expr) -> Check:
        """`any(w in output for w in [...])`."""
        if not isinstance(node, ast.GeneratorExp | ast.ListComp) or len(node.generators) != 1:
            raise NoCounterpart(_BEYOND)
        loop, made = node.generators[0], node.elt
        listed = loop.iter.elts if isinstance(loop.iter, ast.List | ast.Tuple) else []
        if loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name) or not listed:
            raise NoCounterpart(_BEYOND)
        if not (isinstance(made, ast.Compare) and len(made.ops) == 1 and isinstance(made.ops[0], ast.In)):
            raise NoCounterpart(_BEYOND)
        if not isinstance(made.left, ast.Name) or made.left.id != loop.target.id:
            raise NoCounterpart(_BEYOND)
        answer, texts = self._answer(made.comparators[0]), [self._text(each) for each in listed]
        checks = [self._search_check("contains", answer, text) for text in texts]
        return {f"contains-{kind}": texts, **({"ignore-case": True} if checks[0].get("ignore-case") else {})}

    def _answer(self, node: ast.expr) -> _PythonAnswer:
        if isinstance(node, ast.Name) and node.id == "output":
            return _PythonAnswer()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            inner = self._answer(node.func.value)
            if node.func.attr == "lower":
                return inner._replace(lower=True)
            if node.func.attr == "strip":
                return inner._replace(strip=True)
        raise NoCounterpart(_BEYOND)

    def _text(self, node: ast.expr, *, empty: bool = False) -> str:
        """A text that is written there, or a variable of the test."""
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            inner = node.value
            of_vars = isinstance(inner, ast.Subscript) and ast.unparse(inner) == "context['vars']"
            value = self._variables.get(str(node.slice.value)) if of_vars else None
        if not isinstance(value, str) or not (value or empty):
            raise NoCounterpart(_BEYOND)
        return value

    def _search_check(self, name: str, answer: _PythonAnswer, wanted: str) -> Check:
        if answer.strip:
            raise NoCounterpart(_BEYOND)
        return {name: wanted, **lowered(answer.lower, wanted)}
