"""Fleet and queue: is work done, by whom, and what stands in its way?"""

from __future__ import annotations

from grafana.layout import Row, even
from grafana.overview import FLEET, NONE_IS_GOOD
from grafana.pace import quantiles, rate
from grafana.page import Page
from grafana.server import CALLS, SERVER, SERVER_LINES
from grafana.view import COUNT, PER_SECOND, SECONDS, Query, View

WORK = (
    View(
        "Chunks of open runs",
        "Planned ones are not in a queue yet, published ones wait for a worker, leased ones are computed.",
        COUNT,
        "lines",
        (Query("evalq_chunks", "{{state}}"),),
        stacked=True,
        width=12,
    ),
    View(
        "Records committed",
        "Answers a second, by evaluator, each record once.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_records_committed_total", "evaluator"), "{{evaluator}}"),),
        stacked=True,
        width=12,
    ),
    View(
        "Chunks committed",
        "Chunks a second that got an answer, by suite.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_chunks_committed_total", "suite"), "{{suite}}"),),
        width=6,
    ),
    View(
        "Records planned",
        "Records a second of the chunks that producers planned, by suite.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_records_submitted_total", "suite"), "{{suite}}"),),
        width=6,
    ),
    View(
        "Oldest chunk's wait over time",
        "Since the oldest chunk without an answer was first published.",
        SECONDS,
        "lines",
        (Query("evalq_oldest_pending_age_seconds", "oldest"),),
        width=6,
    ),
    View(
        "Time to finish",
        "What is left of open runs at the pace of the last five minutes; nothing where nothing is left or done.",
        SECONDS,
        "lines",
        (Query("evalq:drain:seconds", "to finish"),),
        width=6,
    ),
)

QUEUES = (
    View(
        "Messages in queues",
        "Messages that nobody took yet, by queue. A queue's name holds the version of evalq that it is for.",
        COUNT,
        "lines",
        (Query("evalq_queue_messages", "{{queue}}"),),
    ),
    View(
        "Workers by queue",
        "Living workers that serve a queue. A queue with messages and no worker waits forever.",
        COUNT,
        "lines",
        (Query("evalq_queue_workers", "{{queue}}"),),
    ),
    View(
        "Workers",
        "With a heartbeat; at work or with nothing to take; stuck beside work; sick: an evaluator cannot be loaded.",
        COUNT,
        "lines",
        (
            Query("evalq_workers_alive", "alive"),
            Query("evalq_workers_consuming", "at work"),
            Query("evalq_workers_stuck", "stuck"),
            Query("sum(evalq_workers_sick)", "sick"),
        ),
    ),
    View(
        "Computed right now",
        "Chunks under a lease, messages taken and not finished, and processes that could compute. Messages of a killed "
        "worker count as taken until the broker gives them back; its chunks do not wait for that.",
        COUNT,
        "lines",
        (
            Query("evalq_leases", "leases"),
            Query("evalq_unacked_messages", "messages taken"),
            Query("evalq_pool_processes", "processes"),
        ),
        width=12,
    ),
    View(
        "Wait in the queue",
        "From a chunk's first publication to the lease it was committed under.",
        SECONDS,
        "lines",
        quantiles("evalq_queue_wait_seconds", "evaluator"),
        width=12,
    ),
    View(
        "Evaluation of a chunk",
        "How long a worker computed a chunk that was committed.",
        SECONDS,
        "lines",
        quantiles("evalq_chunk_duration_seconds", "evaluator"),
        width=12,
    ),
    View(
        "Commit",
        "A commit's round trip to the ledger, as the worker saw it.",
        SECONDS,
        "lines",
        quantiles("evalq_commit_duration_seconds", "evaluator"),
        width=12,
    ),
)


_BEFORE = "max(last_over_time(evalq_workers_alive[1d] offset $__range)) >= bool 0"
"""There where somebody looked at the ledger in the day before the time that the page shows."""


def _in_range(title: str, text: str, metric: str) -> View:
    """How often something happened in the time that the page shows, from the counter's own values.

    They are compared with those at its beginning; with 0 where somebody looked then and the counter was not there, or
    was more than it is (the ledger's server was emptied); with the least seen since where nobody looked then.
    """
    last, first = f"sum by (suite) ({metric})", f"sum by (suite) ({metric} offset $__range)"
    least = f"sum by (suite) (min_over_time({metric}[$__range]))"
    unseen = f"({_BEFORE} unless on () max(evalq_workers_alive offset $__range))"
    before = f"{first} <= {last} or ({last} * 0 unless on () {unseen}) or {least} <= {last}"
    query = Query(f"{last} - ({before}) > 0", "{{suite}}")
    return View(title, text, COUNT, "bars", (query,), NONE_IS_GOOD, none="none", width=4)


TROUBLE = (
    _in_range(
        "Dead letters",
        "Records that killed their process and have no result, in the time shown, by suite.",
        "evalq_records_dead_total",
    ),
    _in_range(
        "Divergent answers",
        "Second answers that differed from the first; each fails its run.",
        "evalq_divergent_commits_total",
    ),
    View(
        "Published again",
        "Chunks an hour whose message was lost or whose lease died. A killed worker shows here, and nothing is lost.",
        COUNT,
        "lines",
        (Query("sum by (reason) (increase(evalq_chunks_reconciled_total[1h]))", "{{reason}}"),),
        width=4,
    ),
    View(
        "Failures of workers",
        "Chunks an hour that a worker failed at, by kind; they are offered again. `evalq status RUN` has the reason.",
        COUNT,
        "lines",
        (Query("sum by (kind) (increase(evalq_chunk_failures_total[1h]))", "{{kind}}"),),
        width=4,
    ),
    View(
        "Runs without a worker that can",
        "For how long no living worker can compute the run that waits longest for one: it ends by `unserved_seconds`.",
        SECONDS,
        "lines",
        (Query("evalq_unserved_seconds", "waits"),),
        width=4,
    ),
    View(
        "Answers that came twice",
        "The same answer again, an hour, by suite: it changes nothing, but it was paid for twice.",
        COUNT,
        "lines",
        (Query("sum by (suite) (increase(evalq_duplicates_discarded_total[1h]))", "{{suite}}"),),
        width=4,
    ),
)


def page() -> Page:
    """The page."""
    return Page(
        "fleet",
        "evalq: fleet and queue",
        "Whether the fleet keeps up, and what stands in its way.",
        (
            Row("Now", even(FLEET)),
            Row("Work", WORK),
            Row("Queues and workers", QUEUES),
            Row("Trouble", TROUBLE),
            Row("Live calls of agents", even(CALLS)),
            Row("The ledger's server and the exporter", (*even(SERVER), *SERVER_LINES)),
        ),
        since="now-1h",
        refresh="10s",
        marks=False,
    )
