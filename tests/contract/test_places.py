"""How the program is laid out: an evaluator is a folder of the same files and one line, and no imports form circles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from evalq.evalcore.contract import plugins

TOP = Path(__file__).parents[2]
EVALUATORS = "evalq.evalcore.evaluators."
NEEDED = {f"producer/importing/{name}.py": {"checks"} for name in ("imported", "patterns")}
"""What writes cases for one evaluator asks it which checks there are, and what they say."""
SKELETON = {"params", "score", "report", "views", "sample", "evaluator"}
"""The files of each evaluator, which docs/how-to/add-an-evaluator.md describes."""
PROGRAM = ("evalcore", "workers", "producer", "grafana")


def _known(path: Path) -> set[str]:
    """The evaluators of evalq's own that a module imports from; and those it names, where it names several: a list.

    One name alone may be any word: there is an evaluator called "checks".
    """
    imported, named = set[str](), set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            named.add(node.value)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(EVALUATORS):
            imported.add(node.module.removeprefix(EVALUATORS).partition(".")[0])
    listed = named & {*plugins.built_in()}
    return imported | (listed if len(listed) > 1 else set())


def test_no_module_outside_its_folder_knows_an_evaluator() -> None:
    """Whoever needs one is given it, or asks the registry: a list kept by hand would lack the next one."""
    own = TOP / "evalcore" / "evaluators"
    modules = [path for part in PROGRAM for path in (TOP / part).rglob("*.py")]
    known = {str(path.relative_to(TOP)): _known(path) for path in modules if not path.is_relative_to(own)}
    assert {path: names for path, names in known.items() if names} == NEEDED
    for name in plugins.built_in():
        for path in (own / name).rglob("*.py"):
            assert _known(path) <= {name}, path


@pytest.mark.parametrize("name", plugins.built_in())
def test_every_evaluator_has_the_same_files(name: str) -> None:
    """Whoever knows one finds the score, the report and the views of each; only the evaluator joins them."""
    own = TOP / "evalcore" / "evaluators" / name
    assert {path.stem for path in own.glob("*.py")} >= SKELETON
    joining = f"from {EVALUATORS}{name}.evaluator import"
    assert {path.name for path in own.rglob("*.py") if joining in path.read_text(encoding="utf-8")} == {"__init__.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports within functions count, those for types alone do not. CycleError names the circle."""
    graph = grimp.build_graph("evalq", exclude_type_checking_imports=True, cache_dir=None)
    assert len(graph.modules) > 100
    # Less itself: a package that takes a compiled module of its own in is said to import itself.
    needed = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    TopologicalSorter(needed).prepare()
