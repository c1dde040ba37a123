"""The table of rounds in docs/reliability.md, made from the results file: of each round the last line counts."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.views.markdown import table

RESULTS = Path(__file__).parents[3] / "docs" / "reference" / "rounds.jsonl"
BEGIN, END = "<!-- table of tests/chaos/rounds: begin -->\n", "<!-- table of tests/chaos/rounds: end -->\n"
_HEAD = (
    "how",
    "the commands",
    "rounds",
    "commands",
    "exits 0",
    "refused",
    "neither",
    "runs",
    "chunks planned",
    "computed",
    "reports equal to the inline run's",
    "let go within (most)",
    "seconds a round (median)",
)

Line = dict[str, Any]


def render(lines: Iterable[Line]) -> str:
    """The text between the markers."""
    counted = {(line["way"], *_what(line), line["round"]): line for line in lines}
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in counted.values():
        groups.setdefault((line["way"], *_what(line)), []).append(line)
    if not groups:
        return "No rounds are recorded yet.\n"
    rows = [(way, ", ".join(filter(None, what)), *_row(group)) for (way, *what), group in groups.items()]
    commits = sorted({line["commit"] + ("+" if line["dirty"] else "") for line in counted.values()})
    bad = [line for line in counted.values() if line["why"]]
    return table(_HEAD, rows) + f"\n{len(counted)} rounds, {len(bad)} of them wrong, at commit {', '.join(commits)}.\n"


def _what(line: Line) -> tuple[str, str]:
    if line["kind"] == "other":
        other = "another" if line["differs"] == "chunk size" else "other"
        return f"half of them with {other} {line['differs']}", "all name one folder" if line["named"] else ""
    return ("equal, in 20 folders" if line["kind"] == "folders" else "equal, in one folder"), ""


def _row(lines: Sequence[Line]) -> tuple[object, ...]:
    def total(name: str) -> int:
        return sum(line[name] for line in lines)

    return (
        len(lines),
        total("processes"),
        total("ended"),
        total("refused"),
        total("processes") - total("ended") - total("refused"),
        total("runs"),
        total("chunks"),
        total("computed"),
        total("equal"),
        f"{max(line['spread'] for line in lines) * 1000:.0f} ms",
        f"{statistics.median(line['seconds'] for line in lines):.1f}",
    )


def current() -> list[Line]:
    """The results file's lines."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []
