"""The public names: there, lazy, described, and no others."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import evalq
from evalq.evalcore import errors as internal

TOP = Path(__file__).parents[3]
PAGE = (TOP / "docs" / "reference" / "python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", evalq.__all__)
def test_every_public_name_is_there_and_on_its_page(name: str) -> None:
    """It is found, twice the same, and docs/reference/python.md names it."""
    assert getattr(evalq, name) is getattr(evalq, name)
    assert re.search(rf"`(?:evalq\.)?{name}\b", PAGE), f"docs/reference/python.md says nothing of {name}"


@pytest.mark.parametrize("name", [name for name in evalq.__all__ if name not in ("Json", "__version__")])
def test_every_public_name_says_what_it_is(name: str) -> None:
    """It has a docstring of its own."""
    assert inspect.getdoc(getattr(evalq, name))


@pytest.mark.parametrize(
    "name", ["Comparison", "Decision", "Run", "compare", "evaluate", "gate", "open", "resume", "sweep"]
)
def test_functions_say_what_they_raise_and_have_an_example(name: str) -> None:
    """A docstring with an indented line of code; functions name the errors they raise."""
    text = inspect.getdoc(getattr(evalq, name)) or ""
    assert re.search(r"^    .*evalq\.", text, re.MULTILINE)
    assert name[0].isupper() or "Raises" in text


def test_what_checkers_see_is_what_is_there() -> None:
    """The imports for type checkers name the same objects as the lazy ones."""
    block = inspect.getsource(evalq).partition("if TYPE_CHECKING:\n")[2].partition("\n__all__")[0]
    found = {}
    for module, names in re.findall(r"from (evalq[\w.]*) import (\([^)]*\)|[^\n(]+)", block):
        for part in names.partition("#")[0].strip("()").split(","):
            words = part.split()
            if words:
                found[words[-1]] = (module, words[0])
    assert sorted(found) == sorted(evalq.__all__)
    for name, (module, original) in found.items():
        assert getattr(evalq, name) is getattr(importlib.import_module(module), original)


@pytest.mark.parametrize("name", ["checks", "cooperation", "selfcheck", "verification"])
def test_modules_of_evaluators_are_public(name: str) -> None:
    """What their pages import is there, and is the evaluator's own."""
    module = importlib.import_module(f"evalq.{name}")
    own = importlib.import_module(f"evalq.evalcore.evaluators.{name}")
    assert all(getattr(module, each) is getattr(own, each) for each in module.__all__)


def test_every_error_is_public() -> None:
    """evalq.errors has the whole tree."""
    errors = sorted(name for name in internal.__all__ if isinstance(getattr(internal, name), type))
    assert sorted(evalq.errors.__all__) == errors
    assert all(getattr(evalq.errors, name) is getattr(internal, name) for name in errors)


def test_other_names_are_no_attributes() -> None:
    """A name that is not public is an AttributeError, as from any module."""
    with pytest.raises(AttributeError, match="no attribute 'evaluate_all'"):
        _ = evalq.evaluate_all  # type: ignore[attr-defined] # it is not there


def test_importing_evalq_imports_nothing_else() -> None:
    """`import evalq` loads no module of evalq but itself, and none of the packages that it needs."""
    script = "import sys; before = set(sys.modules); import evalq; print(*sorted(set(sys.modules) - before))"
    message = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert message.split() == ["evalq"]
