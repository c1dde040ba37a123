"""What is changed in a module, what is spared, and that a change is undone."""

from __future__ import annotations

import ast
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase, settings

from tests.mutation.__main__ import Mutant, sampled
from tests.mutation.mutants import changes, made
from tests.mutation.targets import TARGETS
from tests.mutation.trial import Baseline, Chosen, Examples


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a < b", {"x = None", "x = a <= b"}),
        ("x = a is not b", {"x = None", "x = a is b"}),
        ("x += 2", {"x -= 2", "x = 2", "x += 3"}),
        ("x = 1e300", {"x = 2e+300"}),
        ("x = not a and b", {"x = None", "x = not a or b", "x = a and b"}),
        ("f(a, key=True)", {"pass", "f(a)", "f(a, key=False)"}),
        ("x = f'{a} of'", {"x = None", "x = f'{a}XX'"}),
        ("if a:\n    raise E", {"if not a:\n    raise E", "if a:\n    pass"}),
        (
            "while a > 0:\n    break",
            {"while a >= 0:\n    break", "while a > 1:\n    break", "while a > 0:\n    continue"},
        ),
        ("def f(a=1):\n    return a", {"def f(a=2):\n    return a", "def f(a=1):\n    return None"}),
        ("x = [a for a in b if c]", {"x = None", "x = [a for a in b if not c]"}),
        ("x: int = -1", {"x: int = None", "x: int = 1", "x: int = -2"}),
    ],
)
def test_each_change_is_made_once(code: str, expected: set[str]) -> None:
    """One at a time, all of them, and the tree is as before afterwards."""
    tree, found = ast.parse(code), []
    for change in changes(tree):
        with made(change):
            found.append(ast.unparse(tree))
            compile(tree, "x", "exec")
        assert ast.unparse(tree) == ast.unparse(ast.parse(code))
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    "code",
    [
        '"""A docstring."""',
        'import a\nfrom b import c\n__all__ = ["c"]',
        'Kind = Literal["a", "b"]\nNumber = int | float\nGroup = tuple[str, "Kind"]',
        'def f(a: "A" = None) -> "B":\n    """What it does."""\n    return None',
        'class A(B["C"]):\n    summary = "one sentence"\n    x: "int"',
        "if TYPE_CHECKING:\n    x = 1 < 2",
        'def f(a=None):\n    """What it does."""',
    ],
)
def test_what_only_people_and_type_checkers_read_is_spared(code: str) -> None:
    """Nothing in it is changed."""
    assert list(changes(ast.parse(code))) == []


def test_strings_of_prose_are_spared() -> None:
    """Everything else in such a module is changed all the same."""
    tree = ast.parse('x = f("a", 1)')
    assert {change.before for change in changes(tree, prose=True)} == {"x = f('a', 1)", "1"}


def test_a_sample_has_its_share_of_every_module() -> None:
    """The same for the same seed, in order, and of a small module one at least."""
    tree = ast.parse("x = 1\n" * 90)
    many = list(changes(tree))
    mutants = [Mutant("a", Path("a.py"), tree, change) for change in many]
    mutants += [Mutant("b", Path("b.py"), tree, many[0])]
    chosen = sampled(mutants, 10, 3)
    assert chosen == sampled(mutants, 10, 3) != sampled(mutants, 10, 4)
    assert [mutant.module for mutant in chosen] == ["a"] * 10 + ["b"]
    assert [mutant.change.line for mutant in chosen[:-1]] == sorted(mutant.change.line for mutant in chosen[:-1])


def test_the_tests_of_a_line_are_those_that_execute_it() -> None:
    """What a fixture executes is its whole file's, what importing executes is everybody's."""
    path = Path("/m.py")
    seconds = {"a.py::slow": 2.0, "a.py::quick": 1.0, "b.py::other": 0.5}
    lines = {str(path): {"1": [""], "2": ["a.py::slow"], "3": ["a.py", "b.py::other"]}}
    known = Baseline(seconds, lines)
    assert known.tests(path, 1, 1) == ["b.py::other", "a.py::quick", "a.py::slow"]
    assert known.tests(path, 2, 2) == ["a.py::slow"]
    assert known.tests(path, 2, 3) == ["b.py::other", "a.py::quick", "a.py::slow"]
    assert known.tests(path, 5, 9) == []
    known.failed["a.py::slow"] += 3
    assert known.tests(path, 1, 1) == ["a.py::slow", "b.py::other", "a.py::quick"]


def test_a_test_whose_parameters_a_change_has_changed_is_run_too(request: pytest.FixtureRequest) -> None:
    """Before all others: by its old name it is not there, and nothing would run of what notices the change."""

    def test(name: str) -> pytest.Item:
        return pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)

    items = [test("chosen[1]"), test("other"), test("first"), test("chosen[2]")]
    one, other, first, another = (item.nodeid for item in items)
    known = Baseline({first: 0.1, one: 0.2, other: 0.3}, {})
    Chosen({first: 0.1, one: 0.2}, known.names).pytest_collection_modifyitems(items)
    assert [item.nodeid for item in items] == [another, first, one]


@pytest.mark.parametrize(("quick", "most"), [(False, 100), (True, 20)])
def test_a_property_is_tried_on_the_same_examples_each_time(
    quick: bool, most: int, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though conftest loads a profile of its own: else a mutant's fate would be chance."""
    monkeypatch.setattr(hypothesis, "settings", settings)
    try:
        Examples(quick).pytest_configure(pytestconfig)
        now = hypothesis.settings()
        assert (now.derandomize, now.database, now.max_examples) == (True, None, most)
        assert Phase.shrink not in now.phases
    finally:
        settings.load_profile("evalq")


def test_what_is_named_to_be_changed_is_there_and_has_its_tests() -> None:
    """A folder that is moved would else have no mutants; each module of statistics belongs to one name."""
    for name, target in TARGETS.items():
        assert [file for file in target.files() if not file.is_file()] == [], name
        assert [test for test in target.unit if not Path(test).exists()] == [], name
    statistics = [file for name in ("modes", "statistics") for file in TARGETS[name].files()]
    there = [file for file in Path("evalq/evalcore/statistics").rglob("*.py") if file.name != "__init__.py"]
    assert sorted(statistics) == sorted(there)
