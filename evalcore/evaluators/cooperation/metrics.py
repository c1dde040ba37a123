"""What of the cooperation report is watched over time."""

from __future__ import annotations

from evalq.evalcore.views.metrics import Metric

__all__ = ["METRICS"]

_LOG = "logs.{input}."

METRICS = (
    Metric(
        "evalq_cooperation_rate",
        "Events with a cooperative decision.",
        "share",
        _LOG + "cooperation_rate",
        ("input",),
        recent=10,
    ),
    Metric(
        "evalq_cooperation_average_contribution",
        "Mean contribution of a drop, in units of the resource.",
        "number",
        _LOG + "average_contribution",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_average_recovery_turns",
        "Mean turns from a betrayal to the next cooperation.",
        "number",
        _LOG + "average_recovery_time",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_gini",
        "Inequality of contributions: 0 all gave the same, 1 one gave all.",
        "points",
        _LOG + "gini_coefficient",
        ("input",),
        recent=10,
    ),
    Metric(
        "evalq_cooperation_dialogue_entropy", "How evenly agents speak.", "bits", _LOG + "dialogue_entropy", ("input",)
    ),
    Metric("evalq_cooperation_events", "Events of the log.", "count", _LOG + "metadata.total_events", ("input",)),
    Metric("evalq_cooperation_turns", "Turns of the log.", "count", _LOG + "metadata.total_turns", ("input",)),
    Metric(
        "evalq_cooperation_skipped_lines",
        "Lines that are no events and were left out.",
        "count",
        _LOG + "metadata.skipped_lines",
        ("input",),
    ),
    Metric(
        "evalq_cooperation_agent_contribution",
        "What an agent contributed, in units of the resource.",
        "number",
        _LOG + "contributions.{agent}",
        ("input", "agent"),
        most=50,
    ),
    Metric(
        "evalq_cooperation_agent_messages",
        "Events of an agent.",
        "count",
        _LOG + "message_counts.{agent}",
        ("input", "agent"),
        most=50,
    ),
)
