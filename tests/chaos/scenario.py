"""What a seed stands for: an evaluation, a fleet, a server, and faults at points of progress."""

from __future__ import annotations

import random
from dataclasses import dataclass

from evalq.evalcore.contract import plugins
from tests.chaos.faults import FAULTS

_DRAWN = {"planagent": 3, "cooperation": 3, "vs": 2, "selfcheck": 2, "verification": 2, "sweep": 5}
_EVALUATIONS = {**_DRAWN, **{name: 2 for name in plugins.built_in() if name not in _DRAWN}}
"""How often each is drawn; new ones come last, so that seeds of before draw what they drew."""
_CHECKS_FROM = 504
"""From this seed on every other sweep is one of checks; those before are as they were recorded."""
_JUDGED_FROM = 704
"""From this seed on every other sweep of those has a judge."""
_TALKS_FROM = 1950
"""From this seed on every fourth sweep is one of conversations."""
_AOF = ("no", "everysec", "always")
NAIVE = {"": "evalq", "early": "naive Celery, defaults", "late": "naive Celery, acks_late"}
"""Set-ups under test, by the name a scenario has for them."""
FAILOVERS = {"chunks": "planagent", "sweep": "sweep"}
"""What `failovers` evaluates, by what it is."""


@dataclass(frozen=True)
class Planned:
    """A fault, when it strikes (the share of chunks committed), and the seed of its own choices."""

    fault: str
    share: float
    seed: int


@dataclass(frozen=True)
class Scenario:
    """All that is drawn from a seed."""

    seed: int
    evaluation: str
    chunks: int
    workers: int
    concurrency: int
    aof: str
    redis: bool
    elsewhere: bool
    faults: tuple[Planned, ...]
    naive: str = ""
    only: str = ""
    guests: bool = False
    """Whether the workers are those of another Celery application, with evalq in it."""
    exact: bool = False
    """Whether nothing but servers die, so that what a run tells of its calls must be what the agent counted."""


def draw(seed: int, only: str = "", naive: str = "", sweep: str = "") -> Scenario:
    """The scenario of a seed: of all faults, or of ``only`` one; for evalq, or for a naive set-up (a key of NAIVE).

    ``sweep`` is what calls (a key of SWEEPS) where that is not drawn.

    A naive set-up gets the same draw, less what it does not have: other evaluations, blobs, mid-steps of evalq's.
    """
    rng = random.Random(seed)
    evaluation = rng.choices(list(_EVALUATIONS), list(_EVALUATIONS.values()))[0]
    chunks, workers, concurrency = rng.randint(100, 200), rng.randint(1, 3), rng.randint(1, 2)
    aof, redis, elsewhere = rng.choice(_AOF), rng.random() < 0.3, rng.random() < 0.15
    if sweep or (only and not FAULTS[only].runs):
        evaluation = "sweep"
    elif only and not FAULTS[only].sweeps and evaluation == "sweep":
        evaluation = "planagent"
    needed = FAULTS[only].needs_aof if only else ()
    if needed and aof not in needed:
        aof = rng.choice(needed)
    return Scenario(
        seed,
        "planagent" if naive else sweep or _swept(evaluation, seed),
        chunks,
        workers,
        concurrency,
        aof,
        redis,
        elsewhere and not naive,
        _faults(rng, aof, only, naive, sweep=evaluation == "sweep" and not naive),
        naive,
        only or sweep,
    )


def _swept(evaluation: str, seed: int) -> str:
    if evaluation == "sweep" and seed >= _TALKS_FROM and seed % 4 == 3:
        return "sweep of conversations"
    if evaluation != "sweep" or seed < _CHECKS_FROM or not seed % 2:
        return evaluation
    return "sweep of checks with a judge" if seed >= _JUDGED_FROM and seed % 4 == 1 else "sweep of checks"


def failovers(seed: int, count: int, subject: str) -> Scenario:
    """A run of ``subject`` (a key of FAILOVERS) with ``count`` failovers as Sentinel makes them, and no other fault."""
    rng = random.Random(f"{seed} {subject}")
    part = 0.75 / count
    shares = [round(0.05 + part * (number + 0.6 * rng.random()), 2) for number in range(count)]
    planned = tuple(Planned("promote a lagging replica", share, rng.getrandbits(32)) for share in shares)
    only = f"{count} failovers, {subject}"
    return Scenario(
        seed, FAILOVERS[subject], 120, 2, 1, "no", False, False, planned, only=only, exact=subject == "sweep"
    )


def _faults(rng: random.Random, aof: str, only: str, naive: str, *, sweep: bool) -> tuple[Planned, ...]:
    fitting = [fault for fault in FAULTS.values() if (not fault.needs_aof or aof in fault.needs_aof)]
    fitting = [fault for fault in fitting if (fault.sweeps if sweep else fault.runs)]
    names, weights = [fault.name for fault in fitting], [fault.weight for fault in fitting]
    number = rng.randint(1, 2) if only else rng.randint(2, 5)
    chosen = [only] * number if only else rng.choices(names, weights, k=number)
    shares = sorted(round(rng.uniform(0.03, 0.9), 2) for _ in chosen)
    planned = [Planned(name, share, rng.getrandbits(32)) for name, share in zip(chosen, shares, strict=True)]
    rabbit = any(FAULTS[one.fault].on_rabbit for one in planned)
    planned = [one for one in planned if not rabbit or FAULTS[one.fault].beside_rabbit]
    return tuple(one for one in planned if not naive or FAULTS[one.fault].naive)
