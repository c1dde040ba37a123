"""What a recorded call says that it came to: an output or none, and what it took in seconds, money, tokens."""

from __future__ import annotations

import math
from typing import Any

from evalq.evalcore.evaluators.checks.answer import Usage
from evalq.evalcore.naming import found, kind_of, shorten

__all__ = ["Misplaced", "is_error", "lacks_output", "usage_of", "why_no_output"]

_TOKENS = ("prompt_tokens", "completion_tokens")


class Misplaced(ValueError):
    """A key of the line holds what it cannot hold."""


def is_error(value: Any) -> bool:
    """Whether what stands under ``error`` is one: many recorders write null, false or nothing beside each answer."""
    return bool(value.strip() if isinstance(value, str) else value)


def lacks_output(record: dict[str, Any]) -> bool:
    """Whether there is none, or a reason why there is none."""
    return is_error(record.get("error")) or "output" not in record


def why_no_output(record: dict[str, Any]) -> str:
    """Why a line has no output; a recorder may have left its reason under ``error``."""
    error = record.get("error")
    if not is_error(error):
        return "output: missing"
    if isinstance(error, str):
        return f"no output: {shorten(error, 200)}"
    return f"error: {kind_of(error)} where a string is wanted"


def usage_of(record: dict[str, Any]) -> Usage:
    """What the line says that its output took: by its own keys, else by its attempts. Raises Misplaced."""
    cost, latency = (_amount(record, key, "") for key in ("cost", "latency_seconds"))
    prompt, completion = (_count(record, key, "") for key in _TOKENS)
    attempts = record.get("attempts")
    if not attempts:
        return Usage(latency, cost, prompt, completion)
    if not isinstance(attempts, list):
        raise Misplaced(f"attempts: {kind_of(attempts)} where a list is wanted")
    costs, prompts, completions = [], [], []
    last: float | None = None
    for index, attempt in enumerate(attempts):
        where = f"attempts[{index}]"
        if not isinstance(attempt, dict):
            raise Misplaced(f"{where}: {kind_of(attempt)} where an object is wanted")
        # Of the last one: the attempts before it gave no output.
        last = _amount(attempt, "latency_seconds", f"{where}.")
        # Of all: what failed is paid for, too.
        costs.append(_amount(attempt, "cost", f"{where}."))
        prompts.append(_count(attempt, "prompt_tokens", f"{where}."))
        completions.append(_count(attempt, "completion_tokens", f"{where}."))
    return Usage(
        latency if latency is not None else last,
        cost if cost is not None else _sum(costs),
        prompt if prompt is not None else _sum(prompts),
        completion if completion is not None else _sum(completions),
    )


def _sum(values: list[Any]) -> Any:
    """Of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _amount(holder: dict[str, Any], key: str, where: str) -> float | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e15 or not math.isfinite(value):
        raise Misplaced(f"{where}{key}: {found(holder, key)} where a number from 0 is wanted")
    return float(value)


def _count(holder: dict[str, Any], key: str, where: str) -> int | None:
    value = holder.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < 1e15:
        raise Misplaced(f"{where}{key}: {found(holder, key)} where a whole number from 0 is wanted")
    return value
