"""Server, exporter, Prometheus and fleet together, and what is held against the run folders."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tests.agents.server import running_agent
from tests.integration.harness import HAZARDS, running_server, wait_until
from tests.integration.scraping import running_exporter
from tests.live.prometheus import Prometheus, Series, running_prometheus
from tests.live.questions import SILENT, questions
from tests.live.stage import Stage, Truth

_SERVER = ("--appendonly", "yes", "--maxmemory", "512mb", "--maxmemory-policy", "noeviction")
_COUNTERS: dict[str, Callable[[Truth], Counter[tuple[str, str]]]] = {
    "evalq_records_submitted_total": lambda truth: truth.records,
    "evalq_records_committed_total": lambda truth: truth.records - truth.dead,
    "evalq_records_dead_total": lambda truth: truth.dead,
    "evalq_chunks_committed_total": lambda truth: truth.chunks,
    'evalq_runs_ended_total{state="done"}': lambda truth: truth.runs,
}


class Scene(msgspec.Struct):
    """Where a round is played, and who watches it since ``start``; ``end`` is when all of it was scraped."""

    stage: Stage
    prometheus: Prometheus
    start: float
    end: float = 0.0

    def settle(self) -> None:
        """Wait until Prometheus has scraped all that was done before this call.

        What is asked afterwards is asked about that moment: a later scrape may come too late for its time-out, and
        leaves nothing then.
        """
        asked = time.time()

        def scraped() -> float:
            times = [at for one in self.now("timestamp(evalq_ledger_up)") for _, at in one.points]
            return max((at for at in times if at > asked + 2), default=0.0)

        self.end = wait_until(scraped, "a scrape and an evaluation of the rules after the last run")

    def now(self, expr: str) -> list[Series]:
        """What Prometheus answers about the end, or about this moment before there is one."""
        return self.prometheus.now(expr, self.end or None)

    def wrong_counters(self) -> list[str]:
        """Counters that differ from the run folders, by evaluator and suite."""
        truth = self.stage.truth()
        found = []
        for counter, right in _COUNTERS.items():
            shown = self.now(f"sum by (evaluator, suite) ({counter})")
            counted = Counter({(s.labels["evaluator"], s.labels["suite"]): round(s.points[0][1]) for s in shown})
            wanted = right(truth)
            found += [
                f"{counter} of {of}: {counted[of]}, reports have {wanted[of]}"
                for of in sorted({*counted, *wanted})
                if counted[of] != wanted[of]
            ]
        calls = round(self.now("sum(evalq_call_seconds_count)")[0].points[0][1])
        return [*found, *([f"{calls} calls, sweeps have {truth.calls}"] if calls != truth.calls else [])]

    def silent(self) -> list[str]:
        """Questions without an answer at any time that are not listed; listed ones that have one, or are not asked."""
        missed, listed = [], set()
        for question in questions():
            if question.over_time:
                answer = self.prometheus.over(question.expr, self.start, self.end or time.time(), 2)
            else:
                answer = self.now(question.expr)
            asked = f"{question.where} {question.expr}"
            reason = next((pattern for pattern in SILENT if re.search(pattern, asked)), "")
            listed.add(reason)
            if bool(reason) == any(series.points for series in answer):
                missed.append(f"{question.where}: {'is answered' if reason else 'no answer'}: {question.expr}")
        return missed + [f"nothing is asked like {pattern}" for pattern in SILENT if pattern not in listed]


@contextlib.contextmanager
def playing(folder: Path, workers: int = 2) -> Iterator[Scene]:
    """All of it for the length of a block, in ``folder``."""
    with (
        running_server(folder, None, *_SERVER) as server,
        running_exporter(server.url, folder, PYTHONPATH=HAZARDS) as exporter,
        running_prometheus(folder, exporter.url) as prometheus,
        running_agent() as (agent, url),
    ):
        agent.latency = 0.2
        stage = Stage(server, folder, url)
        wait_until(lambda: prometheus.now("evalq_ledger_up"), "the exporter is scraped")
        try:
            stage.fleet.add(0, "--calls", "8", "--targets", "targets.yaml")
            for _ in range(workers):
                stage.fleet.add(1)
            yield Scene(stage, prometheus, time.time())
        finally:
            stage.close()
