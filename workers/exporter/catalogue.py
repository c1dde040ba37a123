"""Every fleet metric of the exporter as data; the exporter and its documentation are generated from it.

Evaluators declare their own gauges (`evalcore.views.metrics`).
"""

from __future__ import annotations

from typing import get_args

from evalq.workers.exporter import series as of
from evalq.workers.exporter.family import MetricFamily, counter, gauge, histogram
from evalq.workers.ledger.failures import Kind
from evalq.workers.ledger.heartbeats import FollowerFacts

_OF = ("evaluator", "suite")
_NEWEST = (*_OF, "target")

_SKIPPED = {"unselected": "left_out", "late": "late", "unreadable": "unread", "removed": "removed"}


def _tool_calls(follower: FollowerFacts) -> dict[str, float]:
    failed = follower.counts.get("tool_errors", 0.0)
    return {"ok": follower.counts.get("tool_calls", 0.0) - failed, "error": failed}


FAMILIES: tuple[MetricFamily, ...] = (
    counter(
        "records_submitted", of.totals("submitted"), "Records of the chunks that were planned into the ledger.", *_OF
    ),
    counter("records_committed", of.totals("records"), "Records whose answer was committed, each once.", *_OF),
    counter(
        "records_dead",
        of.totals("dead"),
        "Records without a result because they killed their process (dead letters).",
        *_OF,
    ),
    counter("chunks_committed", of.totals("chunks"), "Chunks whose answer was committed, each once.", *_OF),
    counter(
        "duplicates_discarded",
        of.totals("duplicates"),
        "Answers that came again and were the same; they change nothing.",
        *_OF,
    ),
    counter(
        "divergent_commits",
        of.totals("divergent"),
        "Answers that came again and differed; each ends its run with exit code 3.",
        *_OF,
    ),
    counter(
        "chunks_reconciled",
        of.totals("reconciled", ("lost", "lease_died")),
        "Chunks published again: their message was lost, or their lease died.",
        *_OF,
        "reason",
    ),
    counter(
        "chunk_failures",
        of.totals("failures", get_args(Kind)),
        "Failures of workers at chunks, by kind: load, environment, evaluator, ledger, input, report.",
        *_OF,
        "kind",
    ),
    gauge(
        "chunks",
        lambda s: of.by_name(s.chunks),
        "Chunks of open runs: planned (unpublished), published (no lease), leased, committed.",
        "state",
    ),
    gauge(
        "oldest_pending_age_seconds",
        lambda s: of.one(s.oldest_age),
        "Since the oldest uncommitted chunk of any open run was first published.",
    ),
    gauge(
        "last_commit_timestamp_seconds",
        lambda s: of.one(s.last_commit),
        "When any answer was committed last, by the server's clock.",
    ),
    histogram(
        "chunk_duration", of.times("chunk_duration"), "Evaluation of a committed chunk, in the worker.", "evaluator"
    ),
    histogram(
        "queue_wait",
        of.times("queue_wait"),
        "From a chunk's first publication to the lease it was committed under.",
        "evaluator",
    ),
    histogram(
        "commit_duration",
        of.times("commit_duration"),
        "A commit's round trip as the worker measured it, reported with its next commit.",
        "evaluator",
    ),
    gauge("leases", lambda s: of.one(s.chunks["leased"]), "Chunks that a worker computes right now.", group="fleet"),
    gauge(
        "queue_messages", lambda s: of.by_name(s.queues), "Messages that lie unread in a queue.", "queue", group="fleet"
    ),
    gauge(
        "queue_workers",
        lambda s: of.by_name({queue: len(s.serving(queue)) for queue in s.queues}),
        "Living workers that serve a queue.",
        "queue",
        group="fleet",
    ),
    gauge(
        "unacked_messages",
        lambda s: [] if s.unacked is None else of.one(s.unacked),
        "Messages that a worker took and has not finished.",
        group="fleet",
    ),
    gauge("workers_alive", lambda s: of.one(len(s.workers)), "Workers with a heartbeat.", group="fleet"),
    gauge(
        "workers_consuming",
        lambda s: of.states(s, "working", "idle"),
        "Living workers that took a chunk lately, or have nothing to take.",
        group="fleet",
    ),
    gauge(
        "workers_stuck",
        lambda s: of.states(s, "stuck"),
        "Living workers that take nothing though their queue holds work.",
        group="fleet",
    ),
    gauge("workers_sick", of.unhealthy, "Living workers that cannot load an evaluator.", "evaluator", group="fleet"),
    gauge(
        "pool_processes",
        lambda s: of.one(sum(worker.concurrency for worker in s.workers)),
        "Processes of all living workers that compute.",
        group="fleet",
    ),
    gauge(
        "runs",
        lambda s: of.by_name({**dict.fromkeys(of.STATES, 0), **s.runs}),
        "Runs in the ledger by state: open, done, paused, failed, cancelled.",
        "state",
        group="runs",
    ),
    gauge(
        "unserved_seconds",
        lambda s: of.one(max((run.seconds for run in s.unserved), default=0.0)),
        "For how long no living worker can compute the open run that waits longest for one; 0 where there is none.",
        group="runs",
    ),
    counter(
        "runs_ended",
        of.totals("ended", [state for state in of.STATES if state != "open"]),
        "Runs that left the open state, by the state they went to.",
        *_OF,
        "state",
        group="runs",
    ),
    gauge(
        "last_run_timestamp_seconds",
        lambda s: of.of_runs(s, lambda newest: newest.entry.ended),
        "When the newest finished run of a suite ended.",
        *_NEWEST,
        group="runs",
    ),
    gauge(
        "last_run_seconds",
        lambda s: of.of_runs(s, lambda newest: newest.entry.seconds),
        "How long the newest finished run of a suite took.",
        *_NEWEST,
        group="runs",
    ),
    gauge(
        "last_run_records",
        of.outcomes,
        "Records of the newest finished run: scored, unscored, errors, dead.",
        *_NEWEST,
        "outcome",
        group="runs",
    ),
    gauge(
        "drift",
        of.drift(lambda measure: float(bool(measure.since))),
        "1 while the runs of a suite are lower than those before them: at most one page in 1,000 unchanged runs.",
        *_NEWEST,
        "measure",
        group="runs",
        together="max",
    ),
    gauge(
        "drift_looks_worse",
        of.drift(lambda measure: float(bool(measure.since or measure.worse))),
        "1 while the runs of a suite look worse than those before them, by a tenth of the evidence of evalq_drift: "
        "at most ten times in 1,000 unchanged runs.",
        *_NEWEST,
        "measure",
        group="runs",
        together="max",
    ),
    gauge(
        "drift_e_value",
        of.drift(lambda measure: measure.e),
        "The evidence of drift, an e-value: from 100 on a suite looks worse, from 1,000 on it drifts until below 100.",
        *_NEWEST,
        "measure",
        group="runs",
        together="max",
    ),
    gauge(
        "drift_change",
        of.drift(lambda measure: measure.change),
        "By how much the newest run differs from all before it, as a share of the scale; below 0 is worse.",
        *_NEWEST,
        "measure",
        group="runs",
        together="mean",
    ),
    gauge("callers_alive", lambda s: of.one(len(s.callers)), "Living processes that make live calls.", group="calls"),
    gauge("sweeps", of.by_target(lambda s: s.sweeps), "Open sweeps with live calls to make.", "target", group="calls"),
    gauge(
        "sweeps_uncalled",
        of.by_target(lambda s: s.uncalled),
        "Those of them whose target no living process of their version calls.",
        "target",
        group="calls",
    ),
    counter(
        "calls",
        of.calls,
        "Live calls: answered, failed, repaid (a second answer to one call).",
        "target",
        "outcome",
        group="calls",
    ),
    counter(
        "call_failures",
        of.calls_by_kind("failed"),
        "Live calls that failed, by the kind of failure.",
        "target",
        "kind",
        group="calls",
    ),
    counter(
        "call_tokens",
        of.calls_by_kind("tokens"),
        "Tokens of live calls, by what they were for.",
        "target",
        "kind",
        group="calls",
    ),
    counter(
        "call_cost", of.call_cost, "What live calls cost, in the currency of the targets file.", "target", group="calls"
    ),
    histogram("call", of.times("seconds", "calls"), "Live calls of agents, from request to answer.", "target", "calls"),
    counter(
        "traces",
        of.followed(lambda one: one.counts.get("traces")),
        "Traces that were followed and put into runs, each once.",
        *_OF,
        group="traces",
    ),
    counter(
        "traces_results",
        of.followed(lambda one: {name: one.counts.get(name) for name in ("passed", "failed", "errors")}),
        "Followed traces by their results: passed, failed, errors (no verdict).",
        *_OF,
        "outcome",
        group="traces",
    ),
    counter(
        "traces_skipped",
        of.followed(lambda one: {reason: one.counts.get(name) for reason, name in _SKIPPED.items()}),
        "What following left out: unselected (traces that no `where` selects), late (traces whose spans came after "
        "they were counted), unreadable (lines), removed (how often files were gone before they were read).",
        *_OF,
        "reason",
        group="traces",
    ),
    counter(
        "traces_tool_calls",
        of.followed(_tool_calls),
        "Calls of tools in followed traces: ok, or error.",
        *_OF,
        "outcome",
        group="traces",
    ),
    counter(
        "traces_tokens",
        of.followed(lambda one: one.counts.get("tokens")),
        "Tokens of followed traces, where they state them.",
        *_OF,
        group="traces",
    ),
    counter(
        "traces_cost",
        of.followed(lambda one: one.counts.get("cost")),
        "What followed traces cost, where they state it.",
        *_OF,
        group="traces",
    ),
    gauge(
        "traces_waiting",
        of.followed(lambda one: one.waiting),
        "Traces that wait for their root span, or for no more spans to come.",
        *_OF,
        group="traces",
    ),
    gauge(
        "traces_lag_seconds",
        of.followed(lambda one: one.lag, "max"),
        "From the end of the newest trace to its result, by the clocks of agent and follower.",
        *_OF,
        group="traces",
        together="max",
    ),
    gauge(
        "traces_pass_age_seconds",
        of.pass_age,
        "Since the last pass of a process that follows traces, of several the longest; none of one that was ended.",
        *_OF,
        group="traces",
        together="max",
    ),
    gauge(
        "traces_pass_interval_seconds",
        of.followed(lambda one: one.every or None, "max"),
        "The seconds between two passes of it.",
        *_OF,
        group="traces",
        together="max",
    ),
    gauge(
        "ledger_up",
        None,
        "1 when the ledger answered this scrape; the rest is missing where it did not.",
        group="server",
    ),
    gauge(
        "ledger_memory_bytes",
        lambda s: of.one(s.server.memory),
        "Memory that the ledger's server uses.",
        group="server",
    ),
    gauge(
        "ledger_memory_limit_bytes",
        lambda s: of.one(s.server.memory_limit),
        "Memory that the server may use; 0 is no limit.",
        group="server",
    ),
    gauge(
        "ledger_may_evict",
        lambda s: of.one(s.server.may_evict),
        "1 when the server may drop keys to make room (its policy is not noeviction).",
        group="server",
    ),
    counter(
        "ledger_evicted_keys",
        lambda s: of.one(s.server.evicted),
        "Keys that the server dropped to make room since it started.",
        group="server",
    ),
    gauge(
        "ledger_persistence",
        lambda s: of.by_name({"aof": s.server.aof}),
        "1 where the server has an append-only file (kind aof).",
        "kind",
        group="server",
    ),
    gauge(
        "ledger_persistence_failed",
        lambda s: of.by_name({"aof": s.server.aof_failed, "rdb": s.server.rdb_failed}),
        "1 when the last write to disk failed: aof, rdb.",
        "kind",
        group="server",
    ),
    gauge(
        "ledger_start_timestamp_seconds",
        lambda s: of.one(s.server.started),
        "When the ledger's server started.",
        group="server",
    ),
    gauge("ledger_clients", lambda s: of.one(s.server.clients), "Connections to the ledger's server.", group="server"),
    gauge("scrape_seconds", None, "How long this scrape took to read the ledger.", group="exporter"),
    gauge(
        "series_folded", None, "Label sets that were left out or counted as other because of a cap.", group="exporter"
    ),
    MetricFamily(
        "evalq_ledger_info",
        "info",
        "The id of the ledger's server since it started: two of them under one `ledger` are two ledgers of one name.",
        ("server",),
        group="server",
    ),
    MetricFamily("evalq_build_info", "info", "The exporter's version.", ("version", "code"), group="exporter"),
)

_BY_NAME = {each.name: each for each in FAMILIES}


def family(name: str) -> MetricFamily:
    """The fleet metric of that name. Raises KeyError."""
    return _BY_NAME[name]
