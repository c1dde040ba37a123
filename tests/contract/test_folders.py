"""How an evaluator that comes with evalq is laid out, and what its state is made of."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, State, Tally
from evalq.evalcore.model.state import Faults, Merging
from evalq.evalcore.statistics.exact import ExactSum

FOLDER = Path(__file__).parents[2] / "evalcore" / "evaluators"
SMALL = {"name", "version", "summary", "records", "Params", "State", "evaluate", "section"}
CAPABILITIES = {"command", "views", "sample", "gathering", "calls", "whole", "measures"}


def test_a_small_evaluator_sees_eight_members() -> None:
    """The contract is those, and beside them a value for each capability; there is nothing else to meet."""
    members = {*Evaluator.__annotations__, *vars(Evaluator)}
    assert {name for name in members if not name.startswith("_")} == SMALL | CAPABILITIES


def test_every_folder_is_a_registered_evaluator() -> None:
    """And every one of evalq's own has a folder of its name."""
    assert sorted(path.parent.name for path in FOLDER.glob("*/__init__.py")) == plugins.built_in()


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """The structs that ``kind`` holds, at any depth."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for inner in typing.get_type_hints(kind).values():
            yield from _structs(inner)
    for inner in typing.get_args(kind):
        yield from _structs(inner)


@pytest.mark.parametrize("name", plugins.built_in())
def test_all_parts_of_a_state_merge_by_the_same_verbs(name: str) -> None:
    """A state and every struct in it is a Merging: zero() is nothing to merge, and the wire carries it."""
    state: type[State] = plugins.get(name).State
    found: set[type[msgspec.Struct]] = {*_structs(state), Tally, Faults, ExactSum}
    for part in found:
        assert issubclass(part, Merging), f"{part.__name__} in the state of {name}"
        assert part.merge is not Merging.merge
        nothing = part.zero()
        nothing.merge(part.zero())
        assert nothing.to_wire() == part.zero().to_wire() == part.from_wire(part.zero().to_wire()).to_wire()
