"""What a cases file may say of diversity, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import ValidationError

from evalq.evalcore.evaluators.checks.faults import Faults, Place
from evalq.evalcore.evaluators.checks.params import Diversity
from evalq.evalcore.naming import kind_of

__all__ = ["layered_diversity"]

_WAYS = get_args(Diversity.model_fields["by"].annotation)
_TOLD = f"{', '.join(_WAYS[:-1])} or {_WAYS[-1]}"
_SPELLED = {name.replace("_", "-"): name for name in Diversity.model_fields}


def layered_diversity(layers: Sequence[tuple[Mapping[str, Any], Place]], faults: Faults) -> dict[str, Any] | None:
    """The options of all layers, name by name, as params have them; None where no layer has any."""
    options: dict[str, Any] = {}
    for layer, under in layers:
        given = layer.get("diversity")
        # `diversity: exact` alone says how; most files need no more.
        given = {"by": given} if isinstance(given, str) else given
        if given is None:
            continue
        place = under.at("diversity")
        if not isinstance(given, dict):
            faults.add(place, f"must be {_TOLD}, or a mapping with `by`, found {kind_of(given)}")
            continue
        for name, value in given.items():
            if wrong := _fault(str(name), value):
                faults.add(place.at(str(name)), wrong)
            else:
                options[_SPELLED[name]] = value
    return options or None


def _fault(name: str, value: Any) -> str:
    """What is wrong with the option ``name`` as a file spells it; empty where nothing is."""
    if name not in _SPELLED:
        return f"unknown key (known here: {', '.join(_SPELLED)})"
    if name == "by":
        return "" if value in _WAYS else f"must be {_TOLD}"
    if name == "embedder":
        return "" if isinstance(value, str) and value else "must be the name of a target"
    if name == "judge":
        return (
            "" if isinstance(value, bool) else "must be true or false; --judge, or the case's own `judge`, names whom"
        )
    # First, since YAML's yes and no are whole numbers to Python, and 1 is a fine threshold.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number between 0 and 1"
    try:
        Diversity.model_validate({_SPELLED[name]: value})
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return ""
