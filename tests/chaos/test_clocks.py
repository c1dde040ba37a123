"""Clocks that are set while processes run: the suite's own means, and a run and a sweep that do not care."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos import clocks
from tests.chaos.battle import fight
from tests.chaos.processes import ChaosServer
from tests.chaos.scenario import Planned, Scenario
from tests.chaos.subjects import Workshop
from tests.integration.harness import clean_environment, wait_until
from tests.portions import some

pytestmark = pytest.mark.skipif(bool(clocks.unavailable()), reason=clocks.unavailable())

HOUR = 3600.0
NEAR = 60.0
"""Seconds that a busy machine may need between two readings."""


def test_a_process_sees_its_clock_set_and_set_back(tmp_path: Path) -> None:
    """The wall clock of Python moves; the monotonic one, by which it waits, does not."""
    clock = clocks.Clocks(tmp_path / "clocks").of("one")
    program = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=clean_environment(**clock.environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ahead() -> tuple[float, float]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            wall, monotonic = map(float, process.stdout.readline().split())
            return wall - time.time(), monotonic - time.monotonic()

        for step, wanted in ((0.0, 0.0), (HOUR, HOUR), (-3 * HOUR, -2 * HOUR)):
            clock.step(step)
            wall, monotonic = ahead()
            assert abs(wall - wanted) < NEAR
            assert abs(monotonic) < NEAR
        process.stdin.close()


def test_a_server_has_a_clock_of_its_own(tmp_path: Path) -> None:
    """TIME, by which evalq measures leases, is what was set."""
    clock = clocks.Clocks(tmp_path / "clocks").of("server")
    server = ChaosServer(tmp_path, None, "no", None)
    server.use(clock)
    server.start()
    try:
        clock.step(-HOUR)
        # It reads its clock once a turn of its loop, and may keep what it read for the first command.
        wait_until(lambda: abs(server.client.time()[0] - time.time() + HOUR) < NEAR, "the server sees its clock set")
    finally:
        server.end()


@pytest.mark.parametrize("evaluation", some(["planagent", "sweep"], of=2))
def test_clocks_that_are_set_change_nothing(tmp_path: Path, evaluation: str) -> None:
    """The server's, a worker's and the producer's, each by up to a day; each row and each call once."""
    names = ("step the server's clock", "step a worker's clock", "step the producer's clock")
    planned = tuple(
        Planned(name, share, seed) for seed, name, share in zip((1, 2, 3), names, (0.1, 0.3, 0.5), strict=True)
    )
    scenario = Scenario(7, evaluation, 120, 2, 1, "no", False, False, planned)
    line = fight(scenario, Workshop(tmp_path / "inputs", 0.4), tmp_path, all_strike=True)
    assert line["equal"], line
    assert (line["lost"], line["doubled"], line["divergent"]) == (0, 0, 0)
    assert set(line["faults"]) == set(names), line
