"""What a sweep under test calls: servers of tests/agents, each a process that counts, and may be killed and revived."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.chaos.processes import environment, spawn
from tests.integration.harness import wait_until

COST = 0.02
"""Of a call, at the targets file's price for a service's tokens."""


class Service:
    """The target ``name``: ``answers`` are attributes of its `tests.agents.server.Agent`."""

    def __init__(self, name: str, folder: Path, points: Path, **answers: float | bool) -> None:
        self.name = name
        self._folder = folder
        self._points = points
        self._answers = answers
        self._port = 0
        self._before = 0
        self.most = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """At the address that it had before, if it had one; it remembers nothing."""
        port_file = self._folder / f"{self.name}.port"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.agents.server", str(port_file), str(self._port)]
        log = self._folder / f"{self.name}.log"
        self._process = spawn(command, self._folder, log, environment(self._points))
        self._port = int(wait_until(lambda: port_file.exists() and port_file.read_text(), f"{self.name} listens"))
        self._control(self._answers)
        self.hold(self.most)

    def hold(self, most: int) -> None:
        """Have it answer no more than so many calls, all that it ever answered counted; 0: any number."""
        self.most = most
        self._count({"most": max(1, most - self._before) if most else 0})

    def kill(self) -> None:
        """SIGKILL: connections are refused until it is started again."""
        # Else what it answers between its count and its end would be served and not counted.
        self._before += self._count({"halted": True})
        self.end()

    def end(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def served(self) -> int:
        """Calls that it has answered well."""
        return self._before + self._count({})

    @property
    def target(self) -> dict[str, Any]:
        """Its entry in the targets file."""
        again = {"times": 20, "wait_seconds": 0.3}
        return {
            "kind": "openai",
            "base_url": f"http://127.0.0.1:{self._port}/v1",
            "model": self.name,
            "timeout_seconds": 10,
            "price": {"prompt_per_million": 1000, "completion_per_million": 1000},
            "retries": {"server": again, "timeout": again},
        }

    def _count(self, values: Mapping[str, int]) -> int:
        """Calls that the process of now has answered well, once ``values`` are set there."""
        try:
            return sum(status == 200 for _, status in self._control(values)["log"])
        except OSError:  # it was killed, and what it had served was counted then
            return 0

    def _control(self, values: Mapping[str, float | bool]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/control", json.dumps(values).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - the service of this very run
            return json.load(answer)
