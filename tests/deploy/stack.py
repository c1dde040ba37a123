"""The compose file's very commands as processes: each service with a file system of its own, below a temporary folder.

What is mapped, and nothing else: a mount's place in the container to a folder (files that are mounted are copied, with
the names in them mapped too), services' names and ports to ports of loopback, and programs of images that are not
installed here to the same program by another name. Commands, variables, secrets, health checks and the order of
starting are the file's own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx

from evalq.producer.local.processes import server_program
from tests.deploy.composed import composed, seconds
from tests.deploy.image import DOCKERFILE, stages
from tests.deploy.programs import TOP, program, run
from tests.integration.harness import EVALQ, PATIENCE, clean_environment, wait_until
from tests.integration.ports import free_port

_WEB = httpx.Client(timeout=60)
_PAUSE = 0.3
"""Seconds between two looks at a health check, each of which is a process."""
_PORTS = {"redis": 6379, "exporter": 9808, "prometheus": 9090}


class Stack:
    """Services of deploy/compose.yaml, each started once those it depends on are well."""

    def __init__(self, folder: Path, data: Path, targets: Path) -> None:
        self._folder = folder
        self._ports = {name: free_port() for name in _PORTS}
        self._programs = _programs(folder / "bin", self._ports["redis"])
        secrets = folder / "secrets"
        made = run("sh", TOP / "deploy" / "secrets.sh", secrets, EVALQ_SERVER=self.at("redis"))
        assert made.returncode == 0, made.stderr
        self.config = composed(EVALQ_SECRETS=str(secrets), EVALQ_DATA=str(data), EVALQ_TARGETS_FOLDER=str(targets))
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def at(self, name: str) -> str:
        """Host and port of a service."""
        return f"127.0.0.1:{self._ports[name]}"

    def service(self, name: str) -> dict[str, Any]:
        """A service as the file has it."""
        found: dict[str, Any] = self.config["services"][name]
        return found

    def start(self, name: str) -> None:
        """Start a service, replicas and all, when what it depends on is well; return when it is well itself."""
        for needed, how in self.service(name).get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            if needed not in self.processes:
                self.start(needed)
        count = self.service(name).get("deploy", {}).get("replicas", 1)
        command, environment = self._command(name, self.service(name)["command"]), self._environment(name)
        extra = {
            "redis": ["--port", str(self._ports["redis"])],
            "prometheus": [f"--web.listen-address={self.at('prometheus')}"],
        }
        self.processes[name] = [
            subprocess.Popen([*command, *extra.get(name, [])], cwd=self._cwd(name), env=environment)
            for _ in range(count)
        ]
        wait_until(lambda: self.well(name), f"{name} is well", pause=_PAUSE)

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """`docker compose run NAME COMMAND`."""
        words = self._command(name, list(command))
        return subprocess.run(
            words, cwd=self._cwd(name), env=self._environment(name), capture_output=True, text=True, check=False
        )

    def well(self, name: str) -> bool:
        """What the service's health check says of each of its processes; the image's where it has none."""
        if any(process.poll() is not None for process in self.processes[name]):
            raise AssertionError(f"{name} has ended: {[process.returncode for process in self.processes[name]]}")
        test = self.service(name).get("healthcheck", {}).get("test")
        if test is None:
            assert dict(stages(DOCKERFILE.read_text())[-1])["HEALTHCHECK"].endswith('CMD ["evalq-health"]')
            return all(self._check(name, ["evalq-health", str(process.pid)]) for process in self.processes[name])
        # Compose doubles the dollar signs of what it has read.
        words = [self._mapped(name, word.replace("$$", "$")) for word in test[1:]]
        return self._check(name, ["sh", "-c", *words] if test[0] == "CMD-SHELL" else words)

    def query(self, promql: str, label: str) -> dict[str, float]:
        """What the stack's Prometheus answers now: {value of ``label``: value}."""
        address = f"http://{self.at('prometheus')}/api/v1/query"
        answer = _WEB.get(address, params={"query": promql}).raise_for_status().json()
        return {each["metric"].get(label, ""): float(each["value"][1]) for each in answer["data"]["result"]}

    def stop(self, name: str) -> list[int]:
        """SIGTERM to each of a service's processes; their exit codes, within the time the file gives them."""
        processes = self.processes.pop(name)
        for process in processes:
            process.terminate()
        return [process.wait(seconds(self.service(name)["stop_grace_period"])) for process in processes]

    def close(self) -> None:
        """End all, the server last."""
        for name in reversed(list(self.processes)):
            for process in self.processes[name]:
                process.kill()
                process.wait()

    def place(self, name: str, path: str) -> Path:
        """Where a path of a service's container is here."""
        return self._folder / "root" / name / path.lstrip("/")

    def _check(self, name: str, words: list[str]) -> bool:
        found = shutil.which(words[0], path=self._environment(name)["PATH"]) or words[0]
        environment = self._environment(name)
        done = subprocess.run(
            [found, *words[1:]],
            cwd=self._cwd(name),
            env=environment,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode == 0

    def _command(self, name: str, command: list[str]) -> list[str]:
        """The image's entry point and the service's command."""
        entry = {"worker": [*EVALQ], "calls": [*EVALQ], "exporter": [*EVALQ], "producer": [*EVALQ]}
        words = [*entry.get(name, []), *[self._mapped(name, word) for word in command]]
        if name == "prometheus":
            words = [program("prometheus"), *words]
        if name == "redis":
            everywhere = words.index("--bind")
            assert words[everywhere + 1 : everywhere + 3] == ["*", "-::*"]
            words[everywhere + 1 : everywhere + 3] = ["127.0.0.1"]
            words[0] = str(self._programs / words[0])
        return words

    def _environment(self, name: str) -> dict[str, str]:
        given = self.service(name).get("environment", {})
        # What the image itself gives evalq.
        own = re.findall(r"\b(EVALQ_\w+)=(\S+)", dict(stages(DOCKERFILE.read_text())[-1])["ENV"])
        given = dict(own) | given if name in ("worker", "calls", "exporter", "producer") else given
        return clean_environment(
            PATH=f"{self._programs}:/usr/bin:/bin",
            PYTHONPATH=str(TOP),
            **{key: self._mapped(name, value) for key, value in given.items()},
        )

    def _cwd(self, name: str) -> Path:
        """The image's working folder, with all that is mounted there."""
        for mount in self.service(name).get("volumes", []):
            self._mount(name, mount)
        for secret in self.service(name).get("secrets", []):
            source = Path(self.config["secrets"][secret["source"]]["file"])
            target = secret.get("target", secret["source"])
            self._copy(name, source, target if target.startswith("/") else f"/run/secrets/{target}")
        cwd = self.place(name, dict(stages(DOCKERFILE.read_text())[-1])["WORKDIR"])
        cwd.mkdir(parents=True, exist_ok=True)
        return cwd

    def _mount(self, name: str, mount: dict[str, Any]) -> None:
        place = self.place(name, mount["target"])
        if mount["type"] == "volume":
            volume = self._folder / "volumes" / mount["source"]
            volume.mkdir(parents=True, exist_ok=True)
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                place.symlink_to(volume)
        elif Path(mount["source"]).is_dir():
            for path in [path for path in Path(mount["source"]).rglob("*") if path.is_file()]:
                self._copy(name, path, f"{mount['target']}/{path.relative_to(mount['source'])}")
        elif Path(mount["source"]).exists():
            self._copy(name, Path(mount["source"]), mount["target"])

    def _copy(self, name: str, source: Path, target: str) -> None:
        place = self.place(name, target)
        if place.exists():
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix in (".yml", ".yaml", ".conf"):
            place.write_text(self._mapped(name, source.read_text()))
        else:
            shutil.copyfile(source, place)

    def _mapped(self, name: str, text: str) -> str:
        """Text with a container's paths, hosts and ports as they are here."""
        for path in ("/run/secrets/", "/etc/redis/", "/etc/prometheus/", "/etc/evalq/", "/srv/evalq/"):
            text = re.sub(rf"(?<![\w/.]){path}", f"{self.place(name, path)}/", text)
        for path in ("/data", "/prometheus"):
            text = re.sub(rf"(?<![\w/.]){path}(?![\w/.])", str(self.place(name, path)), text)
        for service, port in _PORTS.items():
            text = re.sub(rf"\b(?:{service}|localhost|127\.0\.0\.1):{port}\b", self.at(service), text)
            text = re.sub(rf"^{port}$", str(self._ports[service]), text)
        return re.sub(r"^0\.0\.0\.0$", "127.0.0.1", text)


def _programs(folder: Path, port: int) -> Path:
    """Programs that the images have and this machine has by another name: a folder for the PATH."""
    folder.mkdir(parents=True)
    lines = {
        "valkey-server": f'exec {server_program()} "$@"',
        "valkey-cli": f'exec {program("redis-cli")} -p {port} "$@"',
        "evalq": f'exec {" ".join(EVALQ)} "$@"',
        "python": f'exec {EVALQ[0]} "$@"',
        "evalq-health": f'exec sh {TOP}/deploy/health.sh "$@"',
    }
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return folder
