"""The error tree: what its docstring draws is what there is."""

from __future__ import annotations

import re

import pytest

from evalq.evalcore import errors
from evalq.evalcore.errors import EvalqError, InputError, Interrupted


def drawn() -> dict[str, int]:
    """Names and exit codes in the module's docstring."""
    assert errors.__doc__ is not None
    found = re.findall(r"(?:--) (\w+)\s+(\d+)", errors.__doc__)
    return {name: int(code) for name, code in found}


def test_every_error_is_drawn_with_its_exit_code() -> None:
    """The tree in the docstring names all of them, each with the code it has, and none that is not there."""
    classes = {name: getattr(errors, name) for name in errors.__all__ if name != "EvalqError"}
    assert drawn() == {name: kind.exit_code for name, kind in classes.items()}
    assert all(issubclass(kind, EvalqError) for kind in classes.values())


def test_indentation_is_inheritance() -> None:
    """An error drawn under another one is one of its kind."""
    assert errors.__doc__ is not None
    parents: list[tuple[int, type]] = []
    for line in errors.__doc__.splitlines():
        match = re.search(r"-- (\w+)", line)
        if match:
            depth, kind = match.start(), getattr(errors, match[1])
            parents = [(column, parent) for column, parent in parents if column < depth]
            # A kind may also be one of Python's own.
            assert [base for base in kind.__bases__ if issubclass(base, EvalqError)] == [
                parents[-1][1] if parents else EvalqError
            ]
            parents.append((depth, kind))


@pytest.mark.parametrize(
    ("count", "total", "more"), [(20, None, ""), (21, None, "... and 1 more"), (2, 9, "... and 7")]
)
def test_an_input_error_shows_twenty_faults(count: int, total: int | None, more: str) -> None:
    """And says how many it does not show."""
    error = InputError("broken", [(f"a:{line}", "bad") for line in range(count)], total)
    assert str(error).count("bad") == min(count, 20)
    assert more in str(error)
    assert ("more" in str(error)) is bool(more)


def test_an_input_error_without_faults_is_its_message() -> None:
    """Nothing is appended."""
    assert str(InputError("broken")) == "broken"
    assert InputError("broken").total == 0


def test_an_interruption_says_how_to_resume() -> None:
    """The command is in the message."""
    assert str(Interrupted("evalq resume r1")) == "interrupted; resume with: evalq resume r1"
