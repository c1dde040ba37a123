"""The changes that can be made to a module, one at a time, on its syntax tree."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SHOWN = 110
"""Characters of the code before and after that are kept."""

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Div,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_HELP = {"help", "description", "summary"}
_ALIAS = re.compile(r"_?[A-Z][a-z]\w*")
_NONE = ast.Constant(None)


@dataclass(frozen=True)
class Change:
    """A node of a tree and what to put in its place; ``first`` to ``last`` are the lines that a test has to execute."""

    parent: ast.AST
    field: str
    at: int | None
    old: Any
    new: Any
    line: int
    column: int
    first: int
    last: int
    function: str
    before: str
    after: str


@contextmanager
def made(change: Change) -> Iterator[None]:
    """The tree with the change in it, for as long as it is needed."""
    _put(change, change.new)
    try:
        yield
    finally:
        _put(change, change.old)


def _put(change: Change, node: Any) -> None:
    if change.at is None:
        setattr(change.parent, change.field, node)
    else:
        getattr(change.parent, change.field)[change.at] = node


def changes(tree: ast.Module, prose: bool = False) -> Iterator[Change]:
    """All changes of a module, in the order of its code; ``prose`` spares its strings."""
    return _Finder(prose).within(tree)


class _Finder:
    def __init__(self, prose: bool) -> None:
        self._prose = prose
        self._scope: list[str] = []
        self._statement: ast.stmt = ast.Pass(lineno=1, end_lineno=1)

    def within(self, parent: ast.AST) -> Iterator[Change]:
        """The changes of everything below ``parent``."""
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns", "op", "ops", "ctx", "type_comment"):
                continue
            nodes = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            for at, node in nodes:
                if isinstance(node, ast.AST) and not _spared(parent, field, at, node):
                    yield from self._node(parent, field, at, node)

    def _node(self, parent: ast.AST, field: str, at: int | None, node: ast.AST) -> Iterator[Change]:
        outer = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        for new in self._replacements(parent, field, node):
            yield self._change(parent, field, at, node, new)
        scope = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if scope:
            self._scope.append(node.name)  # type: ignore[attr-defined]  # the three have one
        yield from self.within(node)
        if scope:
            self._scope.pop()
        self._statement = outer

    def _change(self, parent: ast.AST, field: str, at: int | None, node: ast.AST, new: ast.AST) -> Change:
        statement = self._statement
        body = getattr(statement, "body", None)
        last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
        line = getattr(node, "lineno", statement.lineno)
        return Change(
            parent=parent,
            field=field,
            at=at,
            old=node,
            new=ast.fix_missing_locations(ast.copy_location(new, node)),
            line=line,
            column=getattr(node, "col_offset", 0),
            first=statement.lineno,
            last=last,
            function=".".join(self._scope),
            before=_shown(node),
            after=_shown(new),
        )

    def _replacements(self, parent: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case ast.Constant(value=value):
                yield from self._constants(value)
            case ast.Compare():
                for i, op in enumerate(node.ops):
                    if type(op) in _SWAPS:
                        yield _with(node, ops=[*node.ops[:i], _SWAPS[type(op)](), *node.ops[i + 1 :]])
            case ast.BinOp() | ast.BoolOp() if type(node.op) in _SWAPS:
                yield _with(node, op=_SWAPS[type(node.op)]())
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                yield node.operand
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield ast.Return(_NONE)
            case ast.Lambda() if not _is_none(node.body):
                yield _with(node, body=_NONE)
            case ast.Assign() | ast.AnnAssign() if node.value is not None and not isinstance(node.value, ast.Constant):
                yield _with(node, value=_NONE)
            case ast.AugAssign():
                if type(node.op) in _SWAPS:
                    yield _with(node, op=_SWAPS[type(node.op)]())
                yield ast.Assign([node.target], node.value)
            case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.Raise():
                yield ast.Pass()
            case ast.Break():
                yield ast.Continue()
            case ast.Continue():
                yield ast.Break()
            case ast.Call():
                for i, keyword in enumerate(node.keywords):
                    if keyword.arg not in (None, *_HELP):
                        yield _with(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])
        decides = field == "test" or (isinstance(parent, ast.comprehension) and field == "ifs")
        if decides and not isinstance(node, ast.Compare) and not isinstance(node, ast.UnaryOp):
            assert isinstance(node, ast.expr)
            yield ast.UnaryOp(ast.Not(), node)

    def _constants(self, value: object) -> Iterator[ast.AST]:
        if isinstance(value, bool):
            yield ast.Constant(not value)
        elif isinstance(value, int | float):
            yield ast.Constant(value + 1 if value + 1 != value else 2 * value)
        elif isinstance(value, str) and not self._prose:
            yield ast.Constant("XX")
        elif isinstance(value, bytes) and not self._prose:
            yield ast.Constant(b"XX")


def _spared(parent: ast.AST, field: str, at: int | None, node: ast.AST) -> bool:
    """Whether nothing is changed in ``node``: what only people and type checkers read."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Subscript(value=ast.Name(id="Literal" | "ClassVar")):
            return True
        case ast.Call(func=ast.Name(id="TypeVar")):
            return True
        case ast.keyword(arg=str(name)) if name in _HELP:
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            if name == "__all__" or name in _HELP:
                return True
            return isinstance(parent, ast.Module) and bool(_ALIAS.fullmatch(name)) and _is_type(node.value)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        # Option(flags, help, ...) and cast("a type", value)
        return (parent.func.id, field, at) in (("Option", "args", 1), ("cast", "args", 0))
    # what a class is built from is a type
    return isinstance(parent, ast.ClassDef) and field == "bases"


def _is_type(value: ast.expr | None) -> bool:
    """Whether an alias's value is a type that nothing is checked against when the program runs."""
    if isinstance(value, ast.Subscript):
        return not (isinstance(value.value, ast.Name) and value.value.id == "Annotated")
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    """A shallow copy with other fields."""
    made = copy.copy(node)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.keyword | ast.comprehension):
        return ast.dump(node)[:SHOWN]
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
