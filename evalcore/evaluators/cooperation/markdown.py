"""The metrics as Markdown, for the run's report and for the seed's SUMMARY.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalq.evalcore.model.canonical import Json
from evalq.evalcore.views.markdown import escape, left_out, table

__all__ = ["log_tables", "markdown", "misfits", "notices", "share", "title"]

_SHOWN, _LISTED = 5, 20


def markdown(report: Mapping[str, Json], options: Mapping[str, Any]) -> str:
    """The report for people: two tables a log. Its first line says where the rules do not fit a log."""
    logs = report["results"]["logs"]
    parts = [f"## {escape(name)}\n\n{log_tables(entry)}" for name, entry in logs.items()]
    wrong = [misfit for name, entry in logs.items() for misfit in misfits(entry, name)]
    return "\n".join([f"{title('Cooperation metrics', wrong)}\n", *parts, *filter(None, [left_out(report)])])


def title(text: str, wrong: Sequence[str]) -> str:
    """A report's first line: its title, and what makes its numbers mean nothing."""
    return f"# {text}" + (f": {escape('; '.join(wrong))}" if wrong else "")


def misfits(entry: Mapping[str, Any], name: str) -> list[str]:
    """What of the rules does not occur in a log at all: its numbers are 0 for that reason, and no other."""
    about = entry["metadata"]
    occurs = about["rules_occur"]
    if not about["total_events"]:
        return []
    found = []
    if not occurs["decision"]:
        said = ", ".join(f"{word} x {rows:,}" for word, rows in list(entry["unknown_decisions"].items())[:_SHOWN])
        found.append(f"no decision in {name} is a word of the rules" + (f" (there are: {said})" if said else ""))
    if not occurs["resource"]:
        key = about["rules"]["resource_key"]
        found.append(f"no row of {name} has the resource {key!r}, so that contributions and Gini of 0 mean nothing")
    return found


def repeated_note(entry: Mapping[str, Any], name: str) -> str:
    """That a (turn, agent) occurs twice, as in two runs appended to one log; empty where none does."""
    about = entry["metadata"]
    twice = about.get("first_repeated")
    if not twice:
        return ""
    more = about["repeated_rows"]
    first = f"{name}: (turn, agent) occurs twice: turn {twice['turn']}, agent {twice['agent']}"
    back = ", and turns go back: are two runs in one log?" if about["out_of_order"] else ""
    return f"{first}; {more:,} such row(s) in all{back}"


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
        ("Rows with the resource", entry.get("snapshots", "not known")),
        ("Rows with an unknown decision", about.get("unknown_rows", "not known")),
        ("Rows that repeat a (turn, agent)", about.get("repeated_rows", "not known")),
    ]
    counts, given = entry["message_counts"], entry["contributions"]
    heads = ("Agent", "Messages", "Share of messages", "Contribution", "Share of contributions")
    messages, stone = sum(counts.values()), sum(given.values())
    agents: list[tuple[object, ...]] = [
        (name, counts[name], f"{share(counts[name], messages):.1%}", given[name], f"{share(given[name], stone):.1%}")
        for name in about["agents"]
    ]
    words: list[tuple[object, ...]] = list(entry.get("unknown_decisions", {}).items())[:_LISTED]
    unknown = [table(("Unknown decision", "Rows"), words)] if words else []
    return "\n".join([table(("Metric", "Value"), facts), table(heads, agents), *unknown])


def share(part: float, whole: float) -> float:
    """``part`` of ``whole``; 0.0 of nothing."""
    return part / whole if whole else 0.0


def notices(report: Mapping[str, Json]) -> list[str]:
    """Where the rules do not fit a log, and where a log has two rows of one agent in one turn."""
    logs = report["results"]["logs"].items()
    wrong = [misfit[0].upper() + misfit[1:] for name, entry in logs for misfit in misfits(entry, name)]
    return wrong + [note for name, entry in logs if (note := repeated_note(entry, name))]
