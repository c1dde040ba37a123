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

from tests.integration.harness import PATIENCE, clean_environment, descendants_of, remove, short_folder, wait_until
from tests.integration.ports import free_port

_IDLE = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""Its schedulers sleep while they have nothing to do: by default they look for work all the time, for a while."""


def unavailable() -> str:
    """Why there can be no node here; empty when there can."""
    return "" if shutil.which("rabbitmq-server") else "rabbitmq-server is not installed"


class Rabbit:
    """The node; `url` is its address for its whole life."""

    def __init__(self, *arguments: str) -> None:
        """``arguments`` go to Erlang: ("-rabbit", "consumer_timeout", "1000")."""
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
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=f"-kernel inet_dist_use_interface {{127,0,0,1}} {_IDLE} "
            + " ".join(arguments),
            ERL_EPMD_PORT=str(names),
            ERL_EPMD_ADDRESS="127.0.0.1",
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to start, unless it runs: it listens some seconds later."""
        if self._process is not None and self._process.poll() is None:
            return
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
        below = _stopped(self._process.pid)
        for pid in (self._process.pid, *below):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=PATIENCE)
        self._process = None
        # The node has to be gone before another takes its port, and before its name service agrees to end.
        wait_until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in below), "RabbitMQ is gone")

    def forget(self) -> None:
        """All that the node had on its disk is gone; while it is down."""
        for path in self._folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def end(self) -> None:
        """Nothing of it is left, its name service neither."""
        self.kill()
        wait_until(self._without_names, "RabbitMQ's name service is gone")
        remove(self._folder)

    def declared(self) -> set[str]:
        """A line for each queue, exchange and binding: "<kind> TAB <name> TAB <how>"."""
        asked = {
            "queue": ("list_queues", "name", "durable", "auto_delete", "arguments"),
            "exchange": ("list_exchanges", "name", "type", "durable", "auto_delete", "arguments"),
            "binding": ("list_bindings", "destination_name", "source_name", "routing_key"),
        }
        return {f"{kind}\t{line}" for kind, words in asked.items() for line in self._ask(*words)}

    def unacknowledged(self, queue: str) -> int:
        """Messages that consumers of a queue hold."""
        lines = [line.split("\t") for line in self._ask("list_queues", "name", "messages_unacknowledged")]
        return sum(int(count) for name, count in lines if name == queue)

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of that name."""
        return name in self._ask("list_queues", "name")

    def delete_queues(self, prefix: str) -> None:
        """All queues whose names begin so."""
        for name in self._ask("list_queues", "name"):
            if name.startswith(prefix):
                self._ask("delete_queue", name)

    def _ask(self, *words: str) -> list[str]:
        node = self._environment["RABBITMQ_NODENAME"]
        command = ["rabbitmqctl", "-s", "-n", node, *words]
        asked = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert asked.returncode == 0, asked.stdout + asked.stderr
        return asked.stdout.splitlines()

    def _without_names(self) -> bool:
        """It refuses to end while it remembers a node."""
        ended = subprocess.run(["epmd", "-kill"], env=self._environment, capture_output=True, text=True, check=False)
        return "living nodes" not in ended.stdout + ended.stderr

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", urllib.parse.urlsplit(self.url).port or 0)) == 0


def _stopped(pid: int) -> list[int]:
    """The processes below one, all of them stopped: one that still runs may start another that nobody looked for."""
    found: list[int] = []
    while new := [each for each in (pid, *descendants_of(pid)) if each not in found]:
        for each in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGSTOP)
        found += new
    return found[1:]
