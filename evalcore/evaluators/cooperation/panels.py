"""How the cooperation report is looked at over time."""

from __future__ import annotations

from evalq.evalcore.views.panels import Panel, Plot

__all__ = ["PANELS"]

PANELS = (
    Panel(
        "Cooperation",
        "Share of events with a cooperative decision, in the newest run of each suite.",
        "share",
        "gauge",
        (Plot("evalq_cooperation_rate", ("suite",), legend="{suite}"),),
        range=(0, 1),
        overview=True,
        width=6,
    ),
    Panel(
        "Cooperation over time",
        "Share of events with a cooperative decision, by log.",
        "share",
        "lines",
        (Plot("evalq_cooperation_rate", ("suite", "input"), legend="{suite} {input}"),),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Cooperation of the last 10 runs",
        "Share of events with a cooperative decision, the newest run at 1.",
        "share",
        "bars",
        (Plot("evalq_cooperation_rate", ("suite",), recent=True, legend="{suite}"),),
        range=(0, 1),
        width=12,
    ),
    Panel(
        "Inequality over time",
        "Gini coefficient of contributions, by log: 0 all gave the same, 1 one gave all.",
        "points",
        "lines",
        (Plot("evalq_cooperation_gini", ("suite", "input"), legend="{suite} {input}"),),
        width=12,
    ),
    Panel(
        "Inequality of the last 10 runs",
        "Gini coefficient of contributions, the newest run at 1.",
        "points",
        "bars",
        (Plot("evalq_cooperation_gini", ("suite",), recent=True, legend="{suite}"),),
        width=12,
    ),
    Panel(
        "Contribution and recovery",
        "Mean contribution of a drop (units), and mean turns until cooperation returns.",
        "number",
        "stat",
        (
            Plot("evalq_cooperation_average_contribution", ("input",), legend="{input} contribution"),
            Plot("evalq_cooperation_average_recovery_turns", ("input",), legend="{input} turns to recover"),
        ),
        width=12,
    ),
    Panel(
        "Dialogue",
        "Entropy of who speaks: higher is more even.",
        "bits",
        "lines",
        (Plot("evalq_cooperation_dialogue_entropy", ("suite", "input"), legend="{suite} {input}"),),
        width=12,
    ),
    Panel(
        "Contributions by agent",
        "What each agent contributed in the newest run.",
        "number",
        "bars",
        (Plot("evalq_cooperation_agent_contribution", ("agent",), "sum", legend="{agent}"),),
        width=12,
    ),
    Panel(
        "Events by agent",
        "How many events each agent has in the newest run.",
        "count",
        "bars",
        (Plot("evalq_cooperation_agent_messages", ("agent",), "sum", legend="{agent}"),),
        width=12,
    ),
    Panel(
        "Logs",
        "Events, turns and left out lines of each log.",
        "count",
        "table",
        (
            Plot("evalq_cooperation_events", ("suite", "input"), "max"),
            Plot("evalq_cooperation_turns", ("suite", "input"), "max"),
            Plot("evalq_cooperation_skipped_lines", ("suite", "input"), "max"),
        ),
        width=24,
    ),
)
