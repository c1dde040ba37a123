"""One seed from its draw to its line in the results file."""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis

from tests.chaos import network
from tests.chaos.faults import FAULTS
from tests.chaos.naive.stage import NaiveStage
from tests.chaos.recovery import POLL_SECONDS, UNHURRIED_SECONDS
from tests.chaos.scenario import NAIVE, Planned, Scenario
from tests.chaos.stage import GuestStage, Stage, hosts_of
from tests.chaos.subjects import Workshop
from tests.chaos.sweeps import SWEEPS, SweepStage
from tests.chaos.verdict import Verdict, code, judge

STOP = threading.Event()
"""Set to have all runs end as they stand."""

PATIENCE_SECONDS = 90.0
NAIVE_PATIENCE_SECONDS = 20.0
"""How long a run may go nowhere, after its last fault or its last commit, before it is given up."""
HELD_SHARE = 10
"""One that is held may go on by one part in so many, since what is lost meanwhile has to be done again."""
ASK_SECONDS = 0.2
"""Between two looks whether what holds it is in the way of its next fault: that takes requests."""


def fight(
    scenario: Scenario,
    workshop: Workshop,
    keep: Path | None = None,
    patience: float | None = None,
    *,
    all_strike: bool = False,
) -> dict[str, Any]:
    """Run one scenario; returns its line. The folder of evalq's that went wrong is kept (under ``keep``, or in /tmp).

    ``patience``: seconds in which nothing happens before it is given up. ``all_strike``: the run is held up so that
    each fault strikes about when it is to, however fast the run is, and none comes too late.
    """
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"evalq-chaos-{scenario.seed}-", dir=keep))
    skipped = "; ".join({lacks: None for one in scenario.faults if (lacks := FAULTS[one.fault].lacks())})
    planned = [one for one in scenario.faults if not FAULTS[one.fault].lacks()]
    with contextlib.ExitStack() as stack:
        net = None
        if any(FAULTS[one.fault].needs_network for one in planned):
            net = stack.enter_context(network.network(str(scenario.seed) + scenario.naive[:1], hosts_of(scenario)))
        own = GuestStage if scenario.guests else Stage
        kind = NaiveStage if scenario.naive else SweepStage if scenario.evaluation in SWEEPS else own
        subject = workshop.sweep(scenario.evaluation) if kind is SweepStage else workshop.subject(scenario.evaluation)
        stage = kind(scenario, subject, folder, net)
        stack.callback(stage.close)
        try:
            for one in planned:
                FAULTS[one.fault].prepare(stage, random.Random(one.seed))
            held = _Held(stage, planned) if all_strike else None
            stage.observer.pause = UNHURRIED_SECONDS if held else POLL_SECONDS
            stage.open()
            _drive(stage, planned, patience or (NAIVE_PATIENCE_SECONDS if scenario.naive else PATIENCE_SECONDS), held)
            verdict = _judged(stage)
        except Exception as error:  # the suite's own trouble is a run that went wrong, and ends no other
            traceback.print_exc()
            verdict = Verdict(False, 0, 0, 0, f"the suite itself: {type(error).__name__}: {error}")
        line = _line(scenario, stage, verdict, skipped, time.monotonic() - began)
    if verdict.good or scenario.naive:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        line["folder"] = str(folder)
    return line


class _Held:
    """A run that goes no further than a little beyond its next fault."""

    def __init__(self, stage: Stage, planned: list[Planned]) -> None:
        self._stage, self._planned = stage, planned
        self._total = stage.subject.units(stage.scenario.chunks)
        self._until, self._units, self._asked = 0.0, -1, 0.0
        self.keep(deque(planned))

    def keep(self, waiting: deque[Planned]) -> None:
        """Let it go on as far as it may, now that these faults have not struck."""
        committed, struck = self._stage.observer.latest.committed, Counter(m.fault for m in self._stage.observer.meters)
        if waiting:
            self._until = waiting[0].share
            if time.monotonic() - self._asked > ASK_SECONDS:
                self._asked = time.monotonic()
                self._stage.hold_further(max(0, math.ceil(self._until * self._total) - committed))
        due = Counter(one.fault for one in self._planned if not FAULTS[one.fault].by_progress)
        slack = 0 if isinstance(self._stage, NaiveStage) else self._total // HELD_SHARE
        units = math.ceil(self._until * self._total) + slack if waiting or due - struck else 0
        if units != self._units:
            self._units = units
            self._stage.hold(units)


def _drive(stage: Stage, planned: list[Planned], patience: float, held: _Held | None) -> None:
    """Until the producer ends, or the run has gone nowhere for too long after the last fault."""
    waiting = deque(planned)
    total = stage.subject.units(stage.scenario.chunks)
    last, seen = time.monotonic(), (0, 0)
    while stage.tick() and not STOP.is_set():
        committed = stage.observer.latest.committed
        if waiting and committed / total >= waiting[0].share:
            with contextlib.suppress(redis.RedisError):
                if FAULTS[waiting[0].fault].strike(stage, random.Random(waiting[0].seed)):
                    waiting.popleft()
        if held is not None:
            held.keep(waiting)
        if seen != (committed, len(stage.observer.meters)):
            last, seen = time.monotonic(), (committed, len(stage.observer.meters))
        if time.monotonic() - last > (patience if committed else PATIENCE_SECONDS):
            stage.ask_where()
            break
        time.sleep(stage.observer.pause)
    stage.hold(0)
    stage.release()


def _judged(stage: Stage) -> Verdict:
    if isinstance(stage, NaiveStage):
        return stage.verdict()
    if isinstance(stage, SweepStage):
        verdict, said = stage.judged(), stage.twins_said()
    else:
        said = stage.twins_said()  # first: one that took the run over has its records when it has ended
        verdict = judge(stage.out, stage.subject.calm, stage.exit_code(), stage.said(), stage.computed_in())
    return verdict if not said else replace(verdict, equal=False, why="; ".join(filter(None, (verdict.why, *said))))


def _line(scenario: Scenario, stage: Stage, verdict: Verdict, skipped: str, seconds: float) -> dict[str, Any]:
    commit, dirty = code()
    struck = [meter.line() for meter in stage.observer.meters]
    line = {
        "seed": scenario.seed,
        "only": scenario.only,
        "setup": "evalq in the workers of another application" if scenario.guests else NAIVE[scenario.naive],
        "evaluation": stage.subject.evaluation,
        "server": f"{'redis' if scenario.redis else 'embedded'}, aof {scenario.aof}",
        "fleet": f"{scenario.workers} x {scenario.concurrency}" + (", blobs" if scenario.elsewhere else ""),
        "records": stage.subject.records,
        "drawn": [f"{one.fault} at {one.share}" for one in scenario.faults],
        "faults": [one["fault"] for one in struck],
        "equal": verdict.equal,
        "lost": verdict.lost,
        "doubled": verdict.doubled,
        "divergent": verdict.divergent,
        "recoveries": struck,
        "restarts": stage.restarts,
        "seconds": round(seconds, 1),
        "commit": commit,
        "dirty": dirty,
    }
    if isinstance(stage, SweepStage):
        line |= stage.told()
    return line | ({"why": verdict.why} if verdict.why else {}) | ({"skipped": skipped} if skipped else {})
