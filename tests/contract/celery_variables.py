"""Variables of the environment that Celery and its libraries read, found in their sources as they are installed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

PACKAGES = ("celery", "kombu", "billiard", "amqp", "vine")
_READERS = ("environ", "getenv")


def variables_read() -> dict[str, set[str]]:
    """{variable: modules that read it}: by a literal name, or as the default of a parameter that holds the name."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        top = Path(str(distribution(package).locate_file(package)))
        for path in top.rglob("*.py"):
            for name in _names(ast.parse(path.read_bytes())):
                found.setdefault(name, set()).add(f"{package}/{path.relative_to(top)}")
    return found


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and _reads(node.value):
            yield from _literal(node.slice)
        elif isinstance(node, ast.Call) and _reads(node.func):
            yield from _literal(node.args[0] if node.args else None)
        elif isinstance(node, ast.Compare) and any(_reads(each) for each in node.comparators):
            yield from _literal(node.left)
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            for argument, default in zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True):
                if argument.arg.startswith("env"):
                    yield from _literal(default)
        elif isinstance(node, ast.keyword) and node.arg == "envvar":
            yield from _literal(node.value)


def _reads(node: ast.expr) -> bool:
    """Whether it is os.environ, a method of it, os.getenv, or a function named for reading a variable."""
    spelt = ast.unparse(node)
    return any(word in spelt for word in _READERS) or spelt.endswith("_env")


def _literal(node: ast.AST | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isupper():
        yield node.value
