"""Every metric of the fleet that the exporter shows, as data: the exporter and its page are made from it.

Evaluators declare their own gauges (`evalcore.views.metrics`). Labels are sets that stay small: users name suites and
targets, so those are capped (``max_suites``), and what is beyond the cap is counted as `OTHER`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from evalq.evalcore.views.metrics import Metric
from evalq.workers.ledger.histograms import SECONDS
from evalq.workers.ledger.ownership import OTHER

__all__ = ["FAMILIES", "OTHER", "RECENT_LABEL", "RUN_LABELS", "SECONDS", "Family", "family", "quality"]

RUN_LABELS = ("suite", "target")
"""Labels that every evaluator's gauge has in front of its own."""

RECENT_LABEL = "position"
"""In ``<name>_recent`` the run: 1 is the newest."""


class Family(msgspec.Struct, frozen=True):
    """A metric: its full name, type, one sentence of help, labels, and a histogram's bucket bounds."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    group: Literal["work", "fleet", "server", "runs", "calls", "exporter"] = "work"


_OF = ("evaluator", "suite")


def _counter(name: str, text: str, *labels: str, group: Literal["work", "calls", "server", "runs"] = "work") -> Family:
    return Family(f"evalq_{name}_total", "counter", text, labels, group=group)


def _gauge(
    name: str,
    text: str,
    *labels: str,
    group: Literal["work", "fleet", "server", "runs", "calls", "exporter"] = "work",
) -> Family:
    return Family(f"evalq_{name}", "gauge", text, labels, group=group)


def _histogram(name: str, text: str, label: str, group: Literal["work", "calls"] = "work") -> Family:
    return Family(f"evalq_{name}_seconds", "histogram", text, (label,), SECONDS, group)


FAMILIES: tuple[Family, ...] = (
    _counter("records_submitted", "Records of the chunks that were planned into the ledger.", *_OF),
    _counter("records_committed", "Records whose answer was committed, each once.", *_OF),
    _counter("records_dead", "Records without a result because they killed their process (dead letters).", *_OF),
    _counter("chunks_committed", "Chunks whose answer was committed, each once.", *_OF),
    _counter("duplicates_discarded", "Answers that came again and were the same; they change nothing.", *_OF),
    _counter("divergent_commits", "Answers that came again and differed; each ends its run with exit code 3.", *_OF),
    _counter(
        "chunks_reconciled",
        "Chunks published again: their message was lost, or their lease died.",
        *_OF,
        "reason",
    ),
    _counter(
        "chunk_failures",
        "Failures of workers at chunks, by kind: load, environment, evaluator, ledger, input, report.",
        *_OF,
        "kind",
    ),
    _gauge("chunks", "Chunks of open runs: planned (unpublished), published (no lease), leased, committed.", "state"),
    _gauge("oldest_pending_age_seconds", "Since the oldest uncommitted chunk of any open run was first published."),
    _gauge("last_commit_timestamp_seconds", "When any answer was committed last, by the server's clock."),
    _histogram("chunk_duration", "Evaluation of a committed chunk, in the worker.", "evaluator"),
    _histogram("queue_wait", "From a chunk's first publication to the lease it was committed under.", "evaluator"),
    _histogram("commit_duration", "A commit's round trip as the worker saw it, told with its next one.", "evaluator"),
    _gauge("leases", "Chunks that a worker computes right now.", group="fleet"),
    _gauge("queue_messages", "Messages that lie unread in a queue.", "queue", group="fleet"),
    _gauge("queue_workers", "Living workers that serve a queue.", "queue", group="fleet"),
    _gauge("unacked_messages", "Messages that a worker took and has not finished.", group="fleet"),
    _gauge("workers_alive", "Workers with a heartbeat.", group="fleet"),
    _gauge("workers_consuming", "Living workers that took a chunk lately, or have nothing to take.", group="fleet"),
    _gauge("workers_stuck", "Living workers that take nothing though their queue holds work.", group="fleet"),
    _gauge("workers_sick", "Living workers that cannot load an evaluator.", "evaluator", group="fleet"),
    _gauge("pool_processes", "Processes of all living workers that compute.", group="fleet"),
    _gauge("runs", "Runs in the ledger by state: open, done, paused, failed, cancelled.", "state", group="runs"),
    _gauge(
        "unserved_seconds",
        "For how long no living worker can compute the open run that waits longest for one; 0 where there is none.",
        group="runs",
    ),
    _counter("runs_ended", "Runs that left the open state, by the state they went to.", *_OF, "state", group="runs"),
    _gauge(
        "last_run_timestamp_seconds", "When the newest finished run of a suite ended.", *_OF, "target", group="runs"
    ),
    _gauge("last_run_seconds", "How long the newest finished run of a suite took.", *_OF, "target", group="runs"),
    _gauge(
        "last_run_records",
        "Records of the newest finished run: scored, unscored, errors, dead.",
        *_OF,
        "target",
        "outcome",
        group="runs",
    ),
    _gauge(
        "drift",
        "1 while the runs of a suite are lower than those before them: at most one page in 1,000 unchanged runs.",
        *_OF,
        "target",
        "measure",
        group="runs",
    ),
    _gauge(
        "drift_e_value",
        "The evidence for that, an e-value: it pages from 1,000 on, and no more below 100.",
        *_OF,
        "target",
        "measure",
        group="runs",
    ),
    _gauge(
        "drift_change",
        "By how much the newest run differs from all before it, as a share of the scale; below 0 is worse.",
        *_OF,
        "target",
        "measure",
        group="runs",
    ),
    _gauge("callers_alive", "Living processes that make live calls.", group="calls"),
    _gauge("sweeps", "Open sweeps with live calls to make.", "target", group="calls"),
    _gauge(
        "sweeps_uncalled",
        "Those of them whose target no living process of their version calls.",
        "target",
        group="calls",
    ),
    _counter(
        "calls",
        "Live calls: answered, failed, repaid (a second answer to one call).",
        "target",
        "outcome",
        group="calls",
    ),
    _counter("call_failures", "Live calls that failed, by the kind of failure.", "target", "kind", group="calls"),
    _counter("call_tokens", "Tokens of live calls, by what they were for.", "target", "kind", group="calls"),
    _counter("call_cost", "What live calls cost, in the currency of the targets file.", "target", group="calls"),
    _histogram("call", "Live calls of agents, from request to answer.", "target", "calls"),
    _gauge(
        "ledger_up", "1 when the ledger answered this scrape; the rest is missing where it did not.", group="server"
    ),
    _gauge("ledger_memory_bytes", "Memory that the ledger's server uses.", group="server"),
    _gauge("ledger_memory_limit_bytes", "Memory that the server may use; 0 is no limit.", group="server"),
    _gauge(
        "ledger_may_evict",
        "1 when the server may drop keys to make room (its policy is not noeviction).",
        group="server",
    ),
    _counter("ledger_evicted_keys", "Keys that the server dropped to make room since it started.", group="server"),
    _gauge("ledger_persistence", "1 where the server has an append-only file (kind aof).", "kind", group="server"),
    _gauge("ledger_persistence_failed", "1 when the last write to disk failed: aof, rdb.", "kind", group="server"),
    _gauge("ledger_start_timestamp_seconds", "When the ledger's server started.", group="server"),
    _gauge("ledger_clients", "Connections to the ledger's server.", group="server"),
    _gauge("scrape_seconds", "How long this scrape took to read the ledger.", group="exporter"),
    _gauge("series_folded", "Label sets that were left out or counted as other because of a cap.", group="exporter"),
    Family("evalq_build_info", "info", "The exporter's version.", ("version", "code"), group="exporter"),
)

_BY_NAME = {each.name: each for each in FAMILIES}


def family(name: str) -> Family:
    """The fleet metric of that name. Raises KeyError."""
    return _BY_NAME[name]


def quality(metric: Metric) -> list[Family]:
    """An evaluator's gauge as the exporter shows it: of the newest run, and (`Metric.recent`) of the last ones."""
    labels = (*RUN_LABELS, *metric.labels)
    shown = [Family(metric.name, "gauge", metric.help, labels, group="runs")]
    if metric.recent:
        text = f"{metric.help} Of the last {metric.recent} runs, the newest at 1."
        shown.append(Family(f"{metric.name}_recent", "gauge", text, (*labels, RECENT_LABEL), group="runs"))
    return shown
