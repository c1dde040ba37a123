"""What the live calls of a run took: time, tokens and money, from its outputs.jsonl."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec

from evalq.evalcore.compare.run import Usage
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import Attempt

__all__ = ["usage_of"]


class _Line(msgspec.Struct):
    error: str = ""
    attempts: tuple[Attempt, ...] = ()


def usage_of(outputs: Path) -> Usage:
    """Of all lines of ``outputs``; eight bytes of memory a line."""
    decode = msgspec.json.Decoder(_Line).decode
    seconds, count, errors, attempts, cost, asked, told = array("d"), 0, 0, 0, 0.0, 0, 0
    with open_input(outputs) as lines:
        for data in lines:
            line = decode(data)
            count += 1
            errors += bool(line.error)
            attempts += len(line.attempts)
            for attempt in line.attempts:
                cost += attempt.cost or 0.0
                asked += attempt.prompt_tokens or 0
                told += attempt.completion_tokens or 0
            if line.attempts:
                seconds.append(line.attempts[-1].latency_seconds)
    return Usage(count, errors, attempts, cost, asked, told, _quantiles(seconds))


def _quantiles(seconds: array[float]) -> dict[str, float]:
    """Each the smallest time that so many of all are not above."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}
