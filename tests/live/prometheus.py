"""A Prometheus of a test's own, with the project's rules, and its answers."""

from __future__ import annotations

import contextlib
import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import yaml

from tests.grafana.known import RULES
from tests.integration.harness import wait_until
from tests.integration.ports import free_port

PROGRAM = shutil.which("prometheus")


class Series(msgspec.Struct, frozen=True):
    """Labels, and (seconds since 1970, value) rising; one point for an instant query."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    """The server at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(timeout=60)

    def now(self, expr: str, at: float | None = None) -> list[Series]:
        """An instant query. Raises AssertionError with the server's words."""
        return self._ask("query", {"query": expr} | ({} if at is None else {"time": str(at)}))

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """A range query."""
        return self._ask("query_range", {"query": expr, "start": str(start), "end": str(end), "step": str(step)})

    def exemplars(self, expr: str, start: float, end: float) -> list[tuple[dict[str, str], dict[str, str], float]]:
        """(labels of the series, labels of the exemplar, when) of all that are kept."""
        form = {"query": expr, "start": str(start), "end": str(end)}
        answer = self._client.post(f"{self.url}/api/v1/query_exemplars", data=form).json()
        assert answer["status"] == "success", answer
        return [
            (one["seriesLabels"], each["labels"], each["timestamp"])
            for one in answer["data"]
            for each in one["exemplars"]
        ]

    def ready(self) -> bool:
        """Whether it answers queries."""
        with contextlib.suppress(httpx.HTTPError):
            return self._client.get(f"{self.url}/-/ready").status_code == 200
        return False

    def _ask(self, path: str, form: dict[str, str]) -> list[Series]:
        answer = self._client.post(f"{self.url}/api/v1/{path}", data=form).json()
        assert answer["status"] == "success", f"{form['query']}: {answer['error']}"
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [Series({}, _points([data["result"]]))]
        return [Series(_labels(one), _points(one.get("values") or [one["value"]])) for one in data["result"]]


def _labels(one: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in one["metric"].items() if name != "__name__"}


def _points(pairs: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(at), float(value)) for at, value in pairs if not math.isnan(float(value))]


@contextlib.contextmanager
def running_prometheus(folder: Path, exporter: str, seconds: int = 1) -> Iterator[Prometheus]:
    """A server that scrapes ``exporter`` (a URL) as the job evalq, and itself, every ``seconds``."""
    assert PROGRAM is not None, "prometheus is not installed: sh tests/programs.sh"
    port = free_port()
    config = {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s", "scrape_timeout": "1s"},
        "rule_files": [str(file) for file in RULES],
        "scrape_configs": [{"job_name": "evalq", "static_configs": [{"targets": [exporter.removeprefix("http://")]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    options = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}")
    command = [PROGRAM, *options, f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    command.append("--enable-feature=exemplar-storage")
    process = subprocess.Popen(command, cwd=folder)
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        wait_until(server.ready, "prometheus is ready")
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
