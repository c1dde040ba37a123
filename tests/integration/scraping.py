"""A running exporter, and what it shows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from evalq.workers.exporter.family import LEDGER
from tests.integration.harness import PATIENCE, start_evalq

OPENMETRICS = "application/openmetrics-text"


class Scraper:
    """The exporter at ``url``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(timeout=PATIENCE)

    def get(self, path: str, accept: str = "") -> tuple[int, str, str]:
        """(status, content type, body) of a path."""
        answer = self._client.get(self.url + path, headers={"Accept": accept or "*/*"})
        return answer.status_code, answer.headers["content-type"], answer.text

    def scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """{(name, labels but the ledger's): value} of /metrics, by way of a parser of OpenMetrics."""
        _, kind, body = self.get("/metrics", OPENMETRICS)
        assert kind.startswith(OPENMETRICS), kind
        families = text_string_to_metric_families(body)  # type: ignore[no-untyped-call]  # the library's
        samples = [sample for family in families for sample in family.samples]
        assert len({sample.labels.pop(LEDGER) for sample in samples}) == 1  # each has it, and all the same
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    def value(self, name: str, **labels: str) -> float | None:
        """One sample, None where it is not there."""
        return self.scrape().get((name, frozenset(labels.items())))


@contextlib.contextmanager
def running_exporter(url: str, cwd: Path, *options: str, **environment: str) -> Iterator[Scraper]:
    """`evalq exporter` on a free port, for the length of a block; it ends well on SIGTERM."""
    process = start_evalq("exporter", "--broker", url, "--port", "0", *options, cwd=cwd, **environment)
    try:
        assert process.stderr is not None
        said = line = process.stderr.readline()
        while "/metrics" not in line:  # it may have had to wait for its server first
            line = process.stderr.readline()
            said += line
            assert line, said
        yield Scraper(line.split()[-1].removesuffix("/metrics"))
        process.terminate()
        assert process.wait(timeout=PATIENCE) == 0, process.stderr.read()
    finally:
        process.kill()
        process.wait()
