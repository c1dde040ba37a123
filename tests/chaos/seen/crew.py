"""The observers' processes and the sampler, beside a run."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.network import HUB, Network
from tests.chaos.processes import TOP, spawn
from tests.chaos.seen.observers import OBSERVERS, Observer
from tests.chaos.seen.rivals import environment_of
from tests.chaos.seen.truth import read_lines
from tests.integration.harness import clean_environment
from tests.integration.ports import free_port

END_SECONDS = 20.0


class Crew:
    """Observers on the server's host, each with a port and a folder; ``rivals`` has their environments."""

    def __init__(self, folder: Path, rivals: Path, url: str, net: Network | None, names: Sequence[str]) -> None:
        self._folder, self._rivals, self._url = folder, rivals, url
        self._prefix = net.prefix(HUB) if net else []
        self._observers = [one for one in OBSERVERS if one.name in names]
        self._ports = {one.name: free_port() for one in self._observers}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir()

    def open(self) -> None:
        """Start everything."""
        for observer in self._observers:
            self._start(observer)
        urls = [f"{name}=http://127.0.0.1:{port}" for name, port in self._ports.items()]
        command = [sys.executable, "-m", "tests.chaos.seen.sampler", str(self._folder), *urls]
        self._processes["sampler"] = self._spawn(command, "sampler", clean_environment(PYTHONPATH=str(TOP)))

    def restart(self) -> None:
        """SIGTERM to each observer, and the same command again."""
        for observer in self._observers:
            self._processes[observer.name].terminate()
        for observer in self._observers:
            self._end(observer.name)
            self._start(observer)

    def answered(self, since: float) -> bool:
        """Whether each has answered a scrape that was begun after ``since``."""
        return all(
            any(line["began"] > since and "facts" in line for line in self.lines(one.name)) for one in self._observers
        )

    def lines(self, name: str) -> list[dict[str, Any]]:
        """An observer's scrapes so far."""
        return read_lines(self._folder / f"{name}.jsonl")

    def close(self) -> None:
        """End them all."""
        for name, process in self._processes.items():
            process.terminate()
            self._end(name)

    def _end(self, name: str) -> None:
        process = self._processes[name]
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, observer: Observer) -> None:
        own = self._folder / observer.name
        own.mkdir(exist_ok=True)
        venv = environment_of(observer, self._rivals)
        command = observer.command(venv, self._url, self._ports[observer.name], own)
        path = {} if observer.packages else {"PYTHONPATH": str(TOP)}
        env = clean_environment(**path, **observer.environment)
        if observer.packages:
            env.pop("PYTHONPATH", None)
        self._processes[observer.name] = self._spawn(command, observer.name, env)

    def _spawn(self, command: list[str], name: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        return spawn(command, self._folder, self._folder / f"{name}.log", env, self._prefix)


def until(crew: Crew, since: float, seconds: float = 90.0) -> None:
    """Wait until all have answered. Raises AssertionError with who has not."""
    deadline = time.monotonic() + seconds
    while not crew.answered(since):
        assert time.monotonic() < deadline, f"an observer does not answer: see the logs in {crew._folder}"
        time.sleep(0.2)
