"""Made-up logs of a simulation, of any length, for the demo, benchmarks and tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import BinaryIO

from evalq.evalcore.contract.evaluator import Request

_DECISIONS = ("cooperate", "contribute", "wait", "Support", "defect", "trade", "join", "steal", "explore", "assist")
_PLACES = ("the quarry", "the mill", "the north gate", "the well", "the granary", "the old bridge", "the ford")
_MOODS = ("Nobody has answered me since", "I owe a favour at", "There was enough for two at", "We were short again at")
_PLANS = ("so I will keep back what I can.", "so a fair share seems right.", "and I would rather look around first.")
_SAYINGS = (
    "Count me in for",
    "I was promised stone at",
    "Let us meet at",
    "Somebody was seen by night at",
    "우리 함께 가요:",
)

_POOL = 1024
_BLOCK = 1 << 15


def write_sample(folder: Path, records: int, seed: int) -> Request:
    """Two logs of one made-up village: one in turn order, and a shorter one out of order."""
    paths = [folder / "events.jsonl", folder / "shuffled.jsonl"]
    for path, events, shuffled in zip(paths, (records - records // 4, records // 4), (False, True), strict=True):
        with path.open("wb") as stream:
            write_events(stream, events, seed, shuffled=shuffled)
    return Request([str(path) for path in paths], {}, {})


def write_events(stream: BinaryIO, events: int, seed: int, agents: int = 12, shuffled: bool = False) -> None:
    """Write ``events`` JSONL lines of about 250 bytes, the same for the same arguments.

    Every agent acts once a turn. Some decisions are null, some amounts are numeric strings, some rows have no
    stone. ``shuffled`` mixes the lines within blocks of 32,768, so that turns go back and forth.
    """
    rng = random.Random(seed)  # noqa: S311 - a sample, not a secret
    names = [f"agent-{number:02d}" for number in range(agents)]
    stock = [40 + rng.randrange(40) for _ in names]
    middles, ends = _middles(rng), _ends(rng)
    for start in range(0, events, _BLOCK):
        lines = []
        for index in range(start, min(start + _BLOCK, events)):
            turn, who = divmod(index, agents)
            bits = rng.getrandbits(40)
            amount = stock[who] = _next_amount(stock[who], bits & 31)
            lines.append(
                f'{{"turn":{turn + 1},"agent":"{names[who]}",{middles[bits >> 5 & 1023]}'
                f"{_stone(amount, bits >> 15 & 63)}{ends[bits >> 21 & 1023]}"
            )
        if shuffled:
            rng.shuffle(lines)
        stream.write("".join(lines).encode())


def _next_amount(amount: int, draw: int) -> int:
    """The next amount, in quarters of a stone: mostly a little less, now and then much more."""
    if draw < 20:
        return amount - draw % 5 if amount > 4 else amount + 48
    return amount + (3 if draw < 26 else 0)


def _stone(amount: int, draw: int) -> str:
    """The resource as in real logs: an integer or a decimal, rarely a string or nothing."""
    if draw == 0:
        return ""
    if draw == 1:
        return f'"stone":"{amount / 4}",'
    return f'"stone":{amount >> 2},' if draw & 1 else f'"stone":{amount / 4},'


def _middles(rng: random.Random) -> list[str]:
    pool = []
    for _ in range(_POOL):
        decision = rng.choice(_DECISIONS) if rng.random() > 0.05 else None
        thought = f"{rng.choice(_MOODS)} {rng.choice(_PLACES)}, {rng.choice(_PLANS)}"
        fields = f'"phase":"act","decision":{json.dumps(decision)},"thought":{json.dumps(thought)}'
        pool.append(f'{fields},"resources":{{')
    return pool


def _ends(rng: random.Random) -> list[str]:
    pool = []
    for _ in range(_POOL):
        message = json.dumps(f"{rng.choice(_SAYINGS)} {rng.choice(_PLACES)}.", ensure_ascii=False)
        food, wood = rng.randrange(30), rng.randrange(200) / 10
        pool.append(f'"food":{food},"wood":{wood}}},"message":{message}}}\n')
    return pool
