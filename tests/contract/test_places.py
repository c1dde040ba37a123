"""How the program is laid out: an evaluator is its folder and one line, and nothing imports itself in a circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from evalq.evalcore.contract import registry

TOP = Path(__file__).parents[2]
PROGRAM = ("evalcore", "workers", "producer", "grafana")


def _named(path: Path) -> set[str]:
    """The evaluators of evalq's own that a module names, in a text of its own or by importing them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.removeprefix("evalq.evalcore.evaluators.").partition(".")[0])
    return found & {*registry.own()}


def test_no_module_outside_its_folder_names_an_evaluator() -> None:
    """Whoever needs one is given it, or asks the registry: a list kept by hand would lack the next one."""
    own = TOP / "evalcore" / "evaluators"
    modules = [path for part in PROGRAM for path in (TOP / part).rglob("*.py")]
    named = {str(path.relative_to(TOP)): _named(path) for path in modules if not path.is_relative_to(own)}
    assert {path: names for path, names in named.items() if names} == {}
    for name in registry.own():
        for path in (own / name).rglob("*.py"):
            assert _named(path) <= {name}, path


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports within functions count, those for types alone do not. CycleError names the circle."""
    graph = grimp.build_graph("evalq", exclude_type_checking_imports=True, cache_dir=None)
    assert len(graph.modules) > 100
    # Less itself: a package that takes a compiled module of its own in is said to import itself.
    needed = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    TopologicalSorter(needed).prepare()
