"""The params an evaluator is tried with: each of its switches and named choices, one at a time."""

from __future__ import annotations

from typing import Any, Literal

from evalq.evalcore.conformance import param_variants
from evalq.evalcore.contract.evaluator import CommandLine, Option, Params
from tests.contract.specimens import Summing


class Rules(Params):
    """Nested params."""

    speed: Literal["mean", "points"] = "mean"
    limit: int = 3


class Pattern(Params):
    """Params that need a value."""

    text: str
    dotall: bool = False


class Switches(Params):
    """Params with switches and choices at several depths."""

    strict: bool = False
    patterns: Literal["default", "hardened", "none"] = "default"
    rules: Rules = Rules()
    first: Pattern = Pattern(text="a")
    named: str = "x"


class Switching(Summing):
    """Has options that set params, and others."""

    Params: type[Any] = Switches
    command = CommandLine(
        (
            Option(("--named",), "A name.", param="named", choices=("x", "y")),
            Option(("--speed",), "Reading.", param="rules.speed", choices=("mean", "points")),
            Option(("--strict",), "Strict.", "bool", param="strict"),
            Option(("--lang",), "Language.", choices=("en", "ko")),
        )
    )


def test_param_variants_take_each_switch_and_choice_once() -> None:
    """The base first, then one change at a time from options and nested params; nothing twice, nothing invalid."""
    changes = [
        {"named": "y"},
        {"rules": {"speed": "points"}},
        {"strict": True},
        {"patterns": "hardened"},
        {"patterns": "none"},
    ]
    assert param_variants(Switching()) == [{}, *changes]
    based = param_variants(Switching(), {"rules": {"limit": 9}})
    assert based[0] == {"rules": {"limit": 9}}
    assert based[2] == {"rules": {"limit": 9, "speed": "points"}}
    assert len(based) == 6
