"""Servers and process groups that can be hurt: on this host or on hosts of their own, each with a log file."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.clocks import Clock
from tests.chaos.network import HUB, Network
from tests.integration import preloaded
from tests.integration.harness import (
    EVALQ,
    HAZARDS,
    Server,
    children_of,
    clean_environment,
    remove,
    short_folder,
    wait_until,
)
from tests.integration.ports import free_port

TOP = Path(__file__).parents[2]
HOOKS = Path(__file__).parent / "hooks"


def environment(points: Path, **extra: str) -> dict[str, str]:
    """For the processes under test: this tree's code, ``extra``, and kill points armed in the folder ``points``."""
    path = os.pathsep.join([str(HOOKS), extra.get("PYTHONPATH", str(TOP))])
    return clean_environment(**extra | {"PYTHONPATH": path, "CHAOS_POINTS": str(points)})


def spawn(
    command: Sequence[str], cwd: Path, log: Path, env: dict[str, str], prefix: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, its output in ``log``.

    In tests one of evalq's is forked where that is the same: what a fault meets begins when all is imported.
    """
    with log.open("ab") as out:
        how: dict[str, Any] = {"cwd": cwd, "env": env, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        how["start_new_session"] = True
        if preloaded.forks and not prefix and _forkable(command, env):
            kind = "worker" if "worker" in command else "command"
            return preloaded.Preloaded(kind, command[3:], module=command[2], **how)
        return subprocess.Popen([*prefix, *command], **how)


def _forkable(command: Sequence[str], env: dict[str, str]) -> bool:
    """Whether it is a program of evalq's, and in ``env`` nothing has to be there before that is imported."""
    ours = tuple(command[:2]) == EVALQ[:2] and command[2] in (EVALQ[2], "tests.chaos.seen.talking")
    path = env.get("PYTHONPATH", "")
    known = {*path.split(os.pathsep)} <= {str(HOOKS), *HAZARDS.split(os.pathsep)}
    return ours and known and "CHAOS_BROKEN" not in env and preloaded.startable(env, path)


@dataclass
class Group:
    """A worker: its main process and the pool processes under it. The main process is reaped at the end only.

    Until then its number, which is also the group's, can't be given to another process.
    """

    process: subprocess.Popen[bytes]
    host: str = ""
    name: str = ""
    replaced: bool = False
    stopped: bool = False
    orphans: list[int] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Of the main process and of the group."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the main process runs (or is stopped)."""
        if self.process.returncode is not None:
            return False
        return not _over(self.pid, wait=False)

    def children(self) -> Sequence[int]:
        """Pool processes."""
        return children_of(self.pid)

    def signal(self, number: int) -> None:
        """To every process of the group, orphans too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill_main(self) -> None:
        """SIGKILL to the main process; its pool processes are left alone."""
        self.orphans = list(self.children())
        os.kill(self.pid, signal.SIGKILL)
        _over(self.pid, wait=True)

    def kill(self) -> None:
        """SIGKILL to the group."""
        if self.process.returncode is None:
            self.signal(signal.SIGKILL)
            _over(self.pid, wait=True)

    def end(self) -> None:
        """Nothing of it is left when this returns."""
        self.kill()
        self.process.wait()


def _over(pid: int, *, wait: bool) -> bool:
    """Whether a process that nobody has reaped has ended, at last if it is to be waited for; it stays unreaped."""
    watched = os.pidfd_open(pid)
    try:
        return bool(select.select([watched], [], [], None if wait else 0)[0])
    finally:
        os.close(watched)


class ChaosServer(Server):
    """A server that the driver reaches by a unix socket, wherever its TCP port is."""

    def __init__(self, folder: Path, program: str | None, aof: str, net: Network | None) -> None:
        self._sockets = short_folder()
        options = ["--unixsocket", str(self._sockets / "s"), "--logfile", str(folder / "server.log")]
        options += ["--repl-diskless-sync-delay", "0"]  # a replica is there at once, not in five seconds
        if aof != "no":
            options += ["--appendonly", "yes", "--appendfsync", aof]
        if net is not None:
            options += ["--protected-mode", "no"]
        super().__init__(folder, program, *options)
        self._folder = folder
        self._replicas: list[ChaosReplica] = []
        if net is not None:
            self._command[self._command.index("127.0.0.1")] = net.address
            self._command = [*net.prefix(HUB), *self._command]
            self.url = f"redis://{net.address}:{self.port}/0"
        self.client: Any = redis.Redis(unix_socket_path=str(self._sockets / "s"))

    def use(self, clock: Clock) -> None:
        """Have it read a clock of its own, and its replicas too; before it is started."""
        self._command = ["env", *(f"{name}={value}" for name, value in clock.environment.items()), *self._command]

    def watcher(self) -> Any:
        """A client for another thread."""
        return redis.Redis(unix_socket_path=str(self._sockets / "s"))

    def start(self) -> None:
        """Unless a replica has taken this server's place meanwhile."""
        with contextlib.suppress(redis.RedisError):
            if self.client.ping():
                return
        super().start()

    def become(self, process: subprocess.Popen[bytes]) -> None:
        """Another process has taken this server's place."""
        self.process = process

    def start_replica(self) -> ChaosReplica:
        """Another server that follows this one, in a folder of its own; it ends with `end`."""
        name = f"replica-{len(self._replicas)}"
        replica = ChaosReplica(self, self._folder.with_name(name), self._sockets / name)
        self._replicas.append(replica)
        return replica

    def end(self) -> None:
        """It, and every replica, whichever answers now."""
        with contextlib.suppress(AssertionError):
            self.kill()
        for replica in self._replicas:
            replica.kill()
        remove(self._sockets)

    def log_size(self) -> tuple[Path, int]:
        """The append-only file that is being written, and its size."""
        newest = max((self._folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime_ns)
        return newest, newest.stat().st_size


class ChaosReplica:
    """A server that follows another one until it stops to; then it can take that one's place and address."""

    def __init__(self, primary: ChaosServer, folder: Path, socket: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._primary, self._socket = primary, socket
        self._socket.unlink(missing_ok=True)
        command = list(primary._command)
        port = command.index("--port") + 1
        command[port] = str(free_port())
        for option, value in (("--dir", folder), ("--unixsocket", self._socket), ("--logfile", folder / "server.log")):
            command[command.index(option) + 1] = str(value)
        host = primary.url.partition("://")[2].partition(":")[0]
        command += ["--replicaof", f"{host} {primary.port}"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        # Asked before it listens, a client that tries again would keep the whole run's driver for seconds.
        self.client: Any = redis.Redis(unix_socket_path=str(self._socket), retry=Retry(NoBackoff(), 0))

    def follows(self) -> bool:
        """Whether it has all that its primary has."""
        assert self._process.poll() is None, f"the replica ended with exit code {self._process.returncode}"
        with contextlib.suppress(redis.RedisError):
            return str(self.client.info("replication").get("master_link_status")) == "up"
        return False

    def stop_following(self) -> None:
        """From now on it hears nothing more: what its primary takes after this is lost with that one."""
        self.client.replicaof("NO", "ONE")

    def take_over(self) -> None:
        """Its primary dies, and it answers at that one's address from now on."""
        primary = self._primary
        primary.kill()
        wait_until(lambda: self._takes_the_port(primary.port), "the port of the dead server is free")
        self._socket.replace(primary._sockets / "s")
        primary.become(self._process)

    def _takes_the_port(self, port: int) -> bool:
        with contextlib.suppress(redis.ResponseError):
            return bool(self.client.config_set("port", port))
        return False

    def kill(self) -> None:
        """End it, where it did not take over."""
        self._process.kill()
        self._process.wait()


def redis_server() -> str | None:
    """redis-server where there is one; None stands for the embedded kind."""
    return shutil.which("redis-server")
