"""What the fleet's page shows of live calls, of the ledger's server, and of the exporter itself."""

from __future__ import annotations

from grafana.overview import NONE_IS_GOOD
from grafana.pace import quantiles, rate
from grafana.view import BYTES, COUNT, EITHER, MONEY, PER_SECOND, SECONDS, WHEN, Query, View

CALLS = (
    View(
        "Sweeps",
        "Open sweeps with calls to make, by target; those whose target nobody calls; and processes that make calls.",
        COUNT,
        "lines",
        (
            Query("evalq_sweeps", "{{target}}"),
            Query("evalq_sweeps_uncalled", "{{target}}: nobody calls"),
            Query("evalq_callers_alive", "processes that call"),
        ),
        width=6,
        none="no live calls",
    ),
    View(
        "Live calls",
        "Calls of agents a second, by target: answered, failed, and repaid (a second answer to one call).",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_calls_total", "target", "outcome"), "{{target}}: {{outcome}}"),),
        width=6,
        none="no live calls",
    ),
    View(
        "Failed calls",
        "Failures a second, by kind.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_call_failures_total", "target", "kind"), "{{target}}: {{kind}}"),),
        width=6,
        none="no live calls",
    ),
    View(
        "Time of a call",
        "From request to answer, by target.",
        SECONDS,
        "lines",
        quantiles("evalq_call_seconds", "target"),
        width=6,
        none="no live calls",
    ),
    View(
        "Tokens",
        "Tokens a second, by target and kind.",
        PER_SECOND,
        "lines",
        (Query(rate("evalq_call_tokens_total", "target", "kind"), "{{target}}: {{kind}}"),),
        width=6,
        none="no live calls",
    ),
    View(
        "Cost",
        "What calls of the last hour cost, by target, in the currency of the targets file's prices.",
        MONEY,
        "lines",
        (Query("sum by (target) (increase(evalq_call_cost_total[1h]))", "{{target}}"),),
        width=6,
        none="no live calls",
    ),
)

SERVER = (
    View(
        "May drop keys",
        "Whether the server drops keys when its memory is full (maxmemory-policy is not noeviction): answers get lost.",
        EITHER,
        "status",
        (Query("evalq_ledger_may_evict"),),
        NONE_IS_GOOD,
        words=((0, "no"), (1, "yes")),
        height=4,
    ),
    View(
        "Keys dropped",
        "Keys that the server dropped to make room since it started.",
        COUNT,
        "stat",
        (Query("evalq_ledger_evicted_keys_total"),),
        NONE_IS_GOOD,
        height=4,
    ),
    View(
        "Writes to disk",
        "Whether the append-only file is on.",
        EITHER,
        "status",
        (Query("evalq_ledger_persistence", "{{kind}}"),),
        words=((0, "off"), (1, "on")),
        height=4,
    ),
    View(
        "Last write failed",
        "Whether the last write to disk failed.",
        EITHER,
        "status",
        (Query("evalq_ledger_persistence_failed", "{{kind}}"),),
        NONE_IS_GOOD,
        words=((0, "no"), (1, "yes")),
        height=4,
    ),
    View(
        "Server runs for",
        "Since the ledger's server started.",
        SECONDS,
        "stat",
        (Query("time() - evalq_ledger_start_timestamp_seconds"),),
        height=4,
    ),
    View(
        "Last commit",
        "When any answer was committed last.",
        WHEN,
        "stat",
        (Query("evalq_last_commit_timestamp_seconds * 1000 > 0"),),
        height=4,
        none="never",
    ),
)

SERVER_LINES = (
    View(
        "Memory",
        "What the server uses, and its limit where it has one.",
        BYTES,
        "lines",
        (Query("evalq_ledger_memory_bytes", "used"), Query("evalq_ledger_memory_limit_bytes > 0", "limit")),
        width=6,
    ),
    View(
        "Connections",
        "Clients of the ledger's server.",
        COUNT,
        "lines",
        (Query("evalq_ledger_clients", "clients"),),
        width=6,
    ),
    View(
        "Scrape",
        "How long the exporter took to read the ledger.",
        SECONDS,
        "lines",
        (Query("evalq_scrape_seconds", "exporter"),),
        width=6,
    ),
    View(
        "Exporter",
        "Its version, and how many label sets it put together as other because of a cap.",
        COUNT,
        "table",
        (
            Query(
                "sum by (version, code) (evalq_build_info * on (instance) group_left () evalq_series_folded)",
                "label sets folded",
            ),
        ),
        width=6,
    ),
)
