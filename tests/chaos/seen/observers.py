"""The three observers: how each is started, and how its answers are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.harness import EVALQ

Facts = dict[str, list[float | None]]
"""By the name of a row: the number, or two where an observer has two for one thing. None: it shows none just now."""

SCRAPE_SECONDS = 15.0
Samples = list[tuple[str, Mapping[str, str], float]]


@dataclass(frozen=True)
class Observer:
    """``command`` makes its command from (environment's folder, server's URL, port, folder of its own)."""

    name: str
    packages: tuple[str, ...]
    """What pip installs for it, the distribution itself first; none for evalq's own."""
    command: Callable[[Path, str, int, Path], list[str]]
    look: Callable[[httpx.Client], Facts]
    reads: dict[str, str]
    """What is read for each row, for the page."""
    environment: dict[str, str] = field(default_factory=dict)


def _samples(client: httpx.Client) -> Samples:
    answer = client.get("/metrics", headers={"Accept": "text/plain; version=0.0.4"})
    answer.raise_for_status()
    families = text_string_to_metric_families(answer.text)
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def _sum(samples: Samples, name: str, **labels: str) -> float | None:
    values = [v for n, found, v in samples if n == name and labels.items() <= found.items()]
    return sum(values) if values else None


def _most(samples: Samples, name: str) -> float | None:
    return max((value for found, _, value in samples if found == name), default=None)


_EVALQ = {
    "chunks": "evalq_chunks_committed_total",
    "records": "evalq_records_committed_total",
    "dead": "evalq_records_dead_total",
    "duplicates": "evalq_duplicates_discarded_total",
    "again": "evalq_chunks_reconciled_total",
    "active": "evalq_leases",
    "alive": "evalq_workers_alive",
    "queue": "evalq_queue_messages",
    "oldest": "evalq_oldest_pending_age_seconds",
    "server": "evalq_ledger_up",
}


def _evalq(client: httpx.Client) -> Facts:
    samples = _samples(client)
    return {row: [_sum(samples, name)] for row, name in _EVALQ.items()}


_CELERY = {
    "chunks": "celery_task_succeeded_total",
    "failed": "celery_task_failed_total",
    "sent": "celery_task_sent_total",
    "begun": "celery_task_started_total",
    "rejected": "celery_task_rejected_total",
    "active": "celery_worker_tasks_active",
    "alive": "celery_worker_up",
    "queue": "celery_queue_length",
}
_ASKED = "celery_active_worker_count"


def _celery(client: httpx.Client) -> Facts:
    samples = _samples(client)
    facts: Facts = {row: [_sum(samples, name)] for row, name in _CELERY.items()}
    facts["alive"].append(_most(samples, _ASKED))
    return facts


_FLOWER = {
    "chunks": "task-succeeded",
    "failed": "task-failed",
    "sent": "task-sent",
    "begun": "task-started",
    "rejected": "task-rejected",
}


def _flower(client: httpx.Client) -> Facts:
    # Asked anew each time, so that it knows workers that came after it.
    client.get("/api/workers", params={"refresh": "true"}).raise_for_status()
    alive: dict[str, bool] = client.get("/api/workers", params={"status": "true"}).raise_for_status().json()
    queues = client.get("/api/queues/length").raise_for_status().json()["active_queues"]
    dashboard: list[dict[str, Any]] = client.get("/workers", params={"json": "true"}).raise_for_status().json()["data"]
    samples = _samples(client)
    facts: Facts = {
        row: [_sum(samples, "flower_events_total", type=kind), float(sum(one.get(kind, 0) for one in dashboard))]
        for row, kind in _FLOWER.items()
    }
    del facts["sent"][1:]  # the dashboard counts by worker, and it is the producer that sends
    facts["active"] = [_sum(samples, "flower_worker_number_of_currently_executing_tasks")]
    facts["alive"] = [_sum(samples, "flower_worker_online"), float(sum(alive.values()))]
    facts["queue"] = [float(sum(one["messages"] for one in queues)) if queues else None]
    return facts


OBSERVERS = (
    Observer(
        "evalq exporter",
        (),
        lambda _venv, url, port, _own: [*EVALQ, "exporter", "--broker", url, "--port", str(port)],
        _evalq,
        _EVALQ,
    ),
    Observer(
        "celery-exporter",
        ("prometheus-exporter-celery==0.11.2", "celery[redis]==5.5.3"),
        lambda venv, url, port, _own: [
            *(str(venv / "bin" / "python"), "-c", "from src.cli import cli; cli(auto_envvar_prefix='CE')"),
            *("--broker-url", url, "--host", "127.0.0.1", "--port", str(port), "--retry-interval", "1"),
        ],
        _celery,
        _CELERY | {"alive": f"celery_worker_up / {_ASKED}"},
    ),
    Observer(
        "Flower",
        ("flower==2.2.0", "celery[redis]"),
        lambda venv, url, port, own: [
            *(str(venv / "bin" / "celery"), "--broker", url, "flower", "--address=127.0.0.1", f"--port={port}"),
            *("--persistent=True", f"--db={own / 'flower'}", "--state_save_interval=5000"),
        ],
        _flower,
        {row: f"flower_events_total of type {kind} / dashboard" for row, kind in _FLOWER.items()}
        | {
            "sent": "flower_events_total of type task-sent",
            "active": "flower_worker_number_of_currently_executing_tasks",
            "alive": "flower_worker_online / /api/workers?status=true",
            "queue": "/api/queues/length",
        },
        {"FLOWER_UNAUTHENTICATED_API": "true", "PATH": os.environ.get("PATH", "")},
    ),
)
