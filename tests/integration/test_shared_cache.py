"""Sweeps that use one cache at the same time: real commands, counted by the agent that both of them ask."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.server import Agent, running_agent, write_golden
from tests.integration.harness import PATIENCE, descendants_of, info, start_evalq, wait_until
from tests.integration.midway import killed_with_all
from tests.integration.test_sweeps import outputs, replays, write_targets

CASES: dict[str, dict[str, Any]] = {f"C{number}": {"share": number / 6} for number in range(6)}


@pytest.fixture
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def started(folder: Path, out: str, repeats: int, cases: dict[str, dict[str, Any]] = CASES) -> subprocess.Popen[str]:
    """A sweep of ``cases`` with the one cache, of this command's own server and calls."""
    golden = write_golden(folder / f"{out}.json", cases)
    words = ("--repeat", str(repeats), "--cache", "cache.sqlite", "--out", out, "--targets", "targets.yaml")
    return start_evalq("vs", golden, "--target", "chat", *words, "--calls", "4", "--format", "none", cwd=folder)


def waits(command: subprocess.Popen[str]) -> str:
    """The line in which a command says that it waits for another one."""
    said = command.stderr
    assert said is not None
    return next(line for line in said if "cache.sqlite: waiting" in line)


def ended(*commands: subprocess.Popen[str]) -> None:
    """Both have done all that they were to do."""
    for command in commands:
        said = command.communicate(timeout=PATIENCE)[1]
        assert command.returncode == 0, said


def test_two_sweeps_with_one_cache_pay_once(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """At the same time: the second one says for whom it waits, and has the first one's answers."""
    agent, url = service
    agent.ready = lambda: False
    write_targets(tmp_path, url)
    first = started(tmp_path, "first", 4)
    wait_until(lambda: agent.at_once == 4, "the first one calls")
    second = started(tmp_path, "second", 6, {name: CASES[name] for name in ("C1", "C4", "C5")} | {"X": {"share": 0.5}})
    said = waits(second)
    assert "3 of 4 cases are being asked by" in said
    assert f" {first.pid} " in said or any(f" {pid} " in said for pid in descendants_of(first.pid)), said
    assert agent.at_once == 4, "it pays nothing meanwhile"
    agent.ready = lambda: True
    ended(first, second)
    assert agent.calls.total() == 4 * 6 + 2 * 3 + 6
    assert [info(tmp_path / out)["calls"]["attempts"] for out in ("first", "second")] == [24, 12]
    known = {(line["case"], line["repeat"]): line["output"] for line in outputs(tmp_path / "first")}
    shared = [line for line in outputs(tmp_path / "second") if (line["case"], line["repeat"]) in known]
    assert len(shared) == 12
    assert all(line["output"] == known[line["case"], line["repeat"]] for line in shared)
    (tmp_path / "second.json").rename(tmp_path / "golden.json")
    replays(tmp_path, tmp_path / "second")
    assert not list(tmp_path.glob("*.lock")), "nothing of it stays"


def test_commands_that_start_at_one_moment_pay_once(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """Whichever is first; three of them, none waits for ever."""
    agent, url = service
    agent.latency = 0.01
    write_targets(tmp_path, url)
    ended(*[started(tmp_path, out, 5) for out in ("a", "b", "c")])
    assert agent.calls.total() == 30
    assert sorted(info(tmp_path / out)["calls"]["attempts"] for out in ("a", "b", "c")) == [0, 0, 30]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_who_waits_goes_on_when_the_first_one_ends_early(
    tmp_path: Path, service: tuple[Agent, str], how: signal.Signals
) -> None:
    """Killed or paused: what the cache has by then is taken, and the rest is paid."""
    agent, url = service
    agent.most = 10
    write_targets(tmp_path, url)
    first = started(tmp_path, "first", 5)
    wait_until(lambda: _kept(tmp_path) == 10 and agent.at_once == 4, "ten answers are kept, and four calls hang")
    second = started(tmp_path, "second", 5)
    waits(second)
    if how == signal.SIGKILL:
        killed_with_all(first)
    else:
        os.kill(first.pid, how)
        assert first.wait(PATIENCE) == 130
    agent.most = 0
    ended(second)
    assert info(tmp_path / "second")["calls"]["attempts"] == 20
    assert agent.calls.total() == 10 + 4 + 20
    assert not list(tmp_path.glob("*.lock")), "the dead one's, too"


def test_sweeps_that_ask_nothing_in_common_do_not_wait(tmp_path: Path, service: tuple[Agent, str]) -> None:
    """Each is answered only while both are calling."""
    agent, url = service
    agent.ready = lambda: len(agent.calls) == 2
    write_targets(tmp_path, url)
    ended(*[started(tmp_path, name, 8, {name: CASES[name]}) for name in ("C0", "C1")])
    assert agent.calls.total() == 16


def _kept(folder: Path) -> int:
    """Outputs in the cache."""
    with contextlib.closing(sqlite3.connect(folder / "cache.sqlite")) as cache, contextlib.suppress(sqlite3.Error):
        (count,) = cache.execute("select count(*) from outputs").fetchone()
        return int(count)
    return 0  # it is not made yet
