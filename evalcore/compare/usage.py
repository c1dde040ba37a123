"""What the live calls of a run took: time, tokens and money, from its outputs.jsonl."""

from __future__ import annotations

import heapq
from array import array
from hashlib import blake2b
from pathlib import Path

import msgspec

from evalq.evalcore.compare.run import Usage
from evalq.evalcore.compare.took import Taking, Took
from evalq.evalcore.contract.measures import Number
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input
from evalq.evalcore.model.calls import Attempt
from evalq.evalcore.model.canonical import Json

__all__ = ["USAGE_NUMBERS", "call_number", "read_usage", "told_in", "usage_of"]


_SAMPLE = 32
"""Where two runs share a tenth of their answers, their samples have one in common in 24 of 25 cases."""


class _Line(msgspec.Struct):
    case: str = ""
    repeat: int = 0
    config: str = ""
    error: str = ""
    attempts: tuple[Attempt, ...] = ()


USAGE = ("usage.seconds", "usage.cost", "usage.prompt_tokens", "usage.completion_tokens")
"""What single outputs of live calls took: the time of the last attempt, and cost and tokens of all attempts."""
TOLD = ("cost", "prompt_tokens", "completion_tokens")
"""What a target may not tell: one without a price, or a server that counts no tokens."""
USAGE_NUMBERS = (
    Number("usage.outputs"),
    Number("usage.errors", "lower", holds_missing=True),
    Number("usage.attempts", "lower"),
    *(Number(name, "lower", "total", name) for name in USAGE[1:]),
    *(Number(f"usage.seconds.p{share}", "lower", "quantile", "usage.seconds", share / 100) for share in (50, 95, 99)),
    *(Number(f"usage.each.{name.partition('.')[2]}", "lower", "mean", name) for name in USAGE),
)
"""What stands under ``usage`` in the results of a live run."""


def usage_of(outputs: Path) -> Usage:
    """What all lines of ``outputs`` say, in eight bytes of memory a line. Raises WireError for a damaged line."""
    return read_usage(outputs)[0]


def read_usage(outputs: Path) -> tuple[Usage, dict[str, Took]]:
    """The same, and what single outputs took."""
    decode = msgspec.json.Decoder(_Line).decode
    seconds, count, errors, attempts, cost, asked, told = array("d"), 0, 0, 0, 0.0, 0, 0
    configs: set[str] = set()
    taking, untold = Taking(USAGE), dict.fromkeys(("seconds", *TOLD), 0)
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
            answered = [attempt for attempt in line.attempts if not attempt.kind]
            untold["seconds"] += bool(answered) and _seconds(line) is None
            for name in TOLD:
                untold[name] += any(getattr(attempt, name) is None for attempt in answered)
            for attempt in line.attempts:
                cost += attempt.cost or 0.0
                asked += attempt.prompt_tokens or 0
                told += attempt.completion_tokens or 0
            # Of the last attempt: those before it gave no output.
            if line.attempts and (took_seconds := _seconds(line)) is not None:
                seconds.append(took_seconds)
            if line.case:
                taking.add(line.case, _taken(line))
    config = configs.pop() if len(configs) == 1 else ""
    took = taking.found({})
    each = {name.partition(".")[2]: own.sketch.mean() for name, own in took.items()}
    found = Usage(
        count, errors, attempts, cost, asked, told, _quantiles(seconds), config, sorted(-number for number in sample),
        {name: mean for name, mean in each.items() if mean is not None},
        {name: outputs for name, outputs in untold.items() if outputs},
    )  # fmt: skip
    return found, took


def told_in(usage: Usage) -> dict[str, Json]:
    """What stands under ``usage`` in the results: null for what no output says, which is not 0."""
    found: dict[str, Json] = msgspec.to_builtins(usage)
    named = [number.path.split(".")[1:] for number in USAGE_NUMBERS]
    for holder in ("each", "seconds"):
        keys = [name for above, *name in named if above == holder and name]
        found[holder] = {**{name: None for (name,) in keys}, **found[holder]}
    # Runs of before say nothing of it; a sum above 0 was told by somebody.
    return {**found, **{name: None for name in TOLD if not found[name] and found["each"][name] is None}}


def _taken(line: _Line) -> tuple[float | None, ...]:
    """What an output took; None where no attempt says, as of a target without a price."""
    if not line.attempts:
        return (None,) * len(USAGE)
    costs, asked, told = (
        [each for each in given if each is not None]
        for given in (
            [attempt.cost for attempt in line.attempts],
            [attempt.prompt_tokens for attempt in line.attempts],
            [attempt.completion_tokens for attempt in line.attempts],
        )
    )
    sums = (float(sum(known)) if known else None for known in (costs, asked, told))
    return (_seconds(line), *sums)


def _seconds(line: _Line) -> float | None:
    # No call takes no time at all: where 0 stands, nobody took it.
    return line.attempts[-1].latency_seconds or None


def call_number(data: bytes) -> int | None:
    """The same for a line of recorded outputs; None where it does not say how long its calls took."""
    try:
        line = msgspec.json.decode(data, type=_Line)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _number(line) if line.case and any(attempt.latency_seconds for attempt in line.attempts) else None


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
