"""The metrics as Markdown, for the run's report and for the seed's SUMMARY.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import escape, table

__all__ = ["log_tables", "markdown", "share"]


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The report for people: two tables a log."""
    parts = [f"## {escape(name)}\n\n{log_tables(entry)}" for name, entry in report["results"]["logs"].items()]
    return "\n".join(["# Cooperation metrics\n", *parts])


def log_tables(entry: Mapping[str, Any]) -> str:
    """Two tables of one log's metrics (the entry of ``results.logs``): the log as a whole, and agent by agent."""
    about = entry["metadata"]
    recovery = entry["average_recovery_time"]
    facts: list[tuple[object, ...]] = [
        ("Cooperation rate", f"{entry['cooperation_rate']:.4f}"),
        ("Average contribution", f"{entry['average_contribution']:.4f}"),
        ("Average recovery time (turns)", "no recovery" if recovery is None else f"{recovery:.4f}"),
        ("Gini coefficient of contributions", f"{entry['gini_coefficient']:.4f}"),
        ("Dialogue entropy (bits)", f"{entry['dialogue_entropy']:.4f}"),
        ("Events", about["total_events"]),
        ("Turns", about["total_turns"]),
        ("Agents", len(about["agents"])),
        ("Dry run", {True: "yes", False: "no"}.get(about["dry_run"], "not known")),
        ("Log", about["log_path"]),
        ("Rows", "sorted by turn first" if about["out_of_order"] else "in turn order"),
        ("Bad lines skipped", about["skipped_lines"]),
    ]
    counts, given = entry["message_counts"], entry["contributions"]
    heads = ("Agent", "Messages", "Share of messages", "Contribution", "Share of contributions")
    messages, stone = sum(counts.values()), sum(given.values())
    agents: list[tuple[object, ...]] = [
        (name, counts[name], f"{share(counts[name], messages):.1%}", given[name], f"{share(given[name], stone):.1%}")
        for name in about["agents"]
    ]
    return "\n".join([table(("Metric", "Value"), facts), table(heads, agents)])


def share(part: float, whole: float) -> float:
    """``part`` of ``whole``; 0.0 of nothing."""
    return part / whole if whole else 0.0
