"""A RabbitMQ node of a test's own, on loopback, with a name service of its own; can be killed and started again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import urllib.parse
from pathlib import Path

from tests.integration.harness import PATIENCE, clean_environment, remove, short_folder, wait_until
from tests.integration.ports import free_port

__all__ = ["Rabbit", "unavailable"]


def unavailable() -> str:
    """Why there can be no node here; empty when there can."""
    return "" if shutil.which("rabbitmq-server") else "rabbitmq-server is not installed"


class Rabbit:
    """The node; `url` is its address for its whole life."""

    def __init__(self) -> None:
        self._folder, self._port, names = short_folder(), free_port(), free_port()
        shutil.chown(self._folder, "rabbitmq") if os.getuid() == 0 else None
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        self._environment = clean_environment(
            RABBITMQ_NODENAME=f"evalq{self._port}@localhost",
            RABBITMQ_NODE_IP_ADDRESS="127.0.0.1",
            RABBITMQ_NODE_PORT=str(self._port),
            RABBITMQ_DIST_PORT=str(free_port()),
            RABBITMQ_MNESIA_BASE=str(self._folder),
            RABBITMQ_LOG_BASE=str(self._folder),
            RABBITMQ_PID_FILE=str(self._folder / "pid"),
            RABBITMQ_ENABLED_PLUGINS_FILE=str(self._folder / "plugins"),
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}",
            ERL_EPMD_PORT=str(names),
            ERL_EPMD_ADDRESS="127.0.0.1",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to start: it listens some seconds later."""
        with (self._folder / "out").open("ab") as log:
            self._process = subprocess.Popen(
                ["rabbitmq-server"], env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        """Until it listens."""
        wait_until(self._listens, "RabbitMQ listens")

    def kill(self) -> None:
        """SIGKILL to the node, whatever it has not written is lost; also while it starts."""
        if self._process is None:
            return
        for pid in _session(self._process.pid):  # the script that starts it changes its user and its group
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=PATIENCE)
        self._process = None

    def forget(self) -> None:
        """All that the node had on its disk is gone; while it is down."""
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def end(self) -> None:
        """Nothing of it is left, its name service neither."""
        self.kill()
        subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, check=False)
        remove(self._folder)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", urllib.parse.urlsplit(self.url).port or 0)) == 0


def _session(leader: int) -> list[int]:
    """The processes of a session, its leader last, so that none of them can begin another meanwhile unseen."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, _, rest = stat.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[3]) == leader:
                found.append(int(pid))
    return sorted(found, key=lambda pid: pid == leader)
