"""What the live calls of a run took: time, tokens and money, from its outputs.jsonl."""

from __future__ import annotations

import heapq
from array import array
from hashlib import blake2b
from pathlib import Path

import msgspec

from evalq.evalcore.compare.run import Usage
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import Attempt

__all__ = ["usage_of"]


_SAMPLE = 32
"""Where two runs share a tenth of their answers, their samples have one in common in 24 of 25 cases."""


class _Line(msgspec.Struct):
    case: str = ""
    repeat: int = 0
    config: str = ""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()


def usage_of(outputs: Path) -> Usage:
    """What all lines of ``outputs`` say, in eight bytes of memory a line. Raises WireError for a damaged line."""
    decode = msgspec.json.Decoder(_Line).decode
    seconds, count, errors, attempts, cost, asked, told = array("d"), 0, 0, 0, 0.0, 0, 0
    configs: set[str] = set()
    sample: list[int] = []  # a heap of the smallest, turned, as its root is to be the largest
    with open_input(outputs) as lines:
        for number_of_line, data in enumerate(lines, start=1):
            try:
                line = decode(data)
            except msgspec.DecodeError as error:
                raise WireError(f"{outputs}:{number_of_line}: not a recorded output: {error}") from error
            configs.add(line.config)
            number = -_number(line)
            if len(sample) < _SAMPLE:
                heapq.heappush(sample, number)
            elif number > sample[0]:
                heapq.heapreplace(sample, number)
            count += 1
            errors += bool(line.error)
            attempts += len(line.attempts)
            for attempt in line.attempts:
                cost += attempt.cost or 0.0
                asked += attempt.prompt_tokens or 0
                told += attempt.completion_tokens or 0
            # Of the last attempt: those before it gave no output.
            if line.attempts:
                seconds.append(line.attempts[-1].latency_seconds)
    config = configs.pop() if len(configs) == 1 else ""
    return Usage(
        count, errors, attempts, cost, asked, told, _quantiles(seconds), config, sorted(-number for number in sample)
    )


def _number(line: _Line) -> int:
    """A number for an answer: another one for each that was given, the same for one that came from a cache."""
    # By latencies: two calls hardly ever take the very same time, and a cached answer keeps that of its own call.
    told = f"{line.case}\0{line.repeat}\0{[attempt.latency_seconds for attempt in line.attempts]}"
    return int.from_bytes(blake2b(told.encode(errors="surrogatepass"), digest_size=6).digest())


def _quantiles(seconds: array[float]) -> dict[str, float]:
    """Each is the smallest time that 50, 95 or 99 of 100 did not exceed."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {f"p{share}": ordered[-(-share * len(ordered) // 100) - 1] for share in (50, 95, 99)}
