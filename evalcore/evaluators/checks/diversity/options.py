"""What a cases file may say of diversity, and what is wrong with it."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ValidationError

from evalq.evalcore.evaluators.checks.params import Diversity

__all__ = ["WAYS", "diversity_fault"]

_ways = get_args(Diversity.model_fields["by"].annotation)
WAYS = f"{', '.join(_ways[:-1])} or {_ways[-1]}"
"""By what answers can be counted."""
_SPELLED = {name.replace("_", "-"): name for name in Diversity.model_fields}


def diversity_fault(name: str, value: Any) -> str:
    """What is wrong with the option ``name`` as a file spells it; empty where nothing is."""
    if name not in _SPELLED:
        return f"unknown key (known here: {', '.join(_SPELLED)})"
    if name == "by":
        return "" if value in _ways else f"must be {WAYS}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number between 0 and 1"
    try:
        Diversity.model_validate({_SPELLED[name]: value})
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    return ""
