"""`python -m tests.chaos.table`: the tables of faults and of rounds in docs/reliability.md, made from results files.

Of several lines for one seed the last counts; lines of a tree with changes in it (``dirty``) do not count.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evalq.evalcore.views.markdown import table
from tests.chaos.rounds import page as rounds

TOP = Path(__file__).parents[2]
RESULTS = TOP / "docs" / "reference" / "chaos.jsonl"
PAGE = TOP / "docs" / "reliability.md"
BEGIN, END = "<!-- table of tests/chaos: begin -->\n", "<!-- table of tests/chaos: end -->\n"
OURS = "evalq"
_HEAD = (
    "fault",
    "runs",
    "equal",
    "rows lost",
    "rows doubled",
    "recovery median",
    "p95",
    "victims' chunks",
    "naive: defaults",
    "acks_late",
)
_NAIVE = ("naive Celery, defaults", "naive Celery, acks_late")

Line = dict[str, Any]


def render(lines: Iterable[Line]) -> str:
    """The text between the markers."""
    counted = {(line["setup"], line["seed"], line["only"]): line for line in lines if not line["dirty"]}
    runs = list(counted.values())
    if not runs:
        return "No runs are recorded yet.\n"
    marks = sorted({line["only"] for line in runs if "failovers" in line["only"]})
    mixed = [line for line in runs if line["only"] not in marks]
    names = sorted({fault for line in mixed for fault in line["faults"]})
    rows = [_row(name, [line for line in mixed if name in line["faults"]], name) for name in names]
    rows += [_row(mark, [line for line in runs if line["only"] == mark], "") for mark in marks]
    rows.append(_row("all runs", runs, ""))
    commits = sorted({line["commit"] for line in runs})
    records = sum(line["records"] for line in runs if line["setup"] == OURS)
    return (
        table(_HEAD, rows)
        + f"\nCounted over {records:,} records of evalq's runs, at commit {', '.join(commits)}. A run has\n"
        "several faults and counts in the row of each. Recovery: seconds from the fault to the next commit of a\n"
        "living worker, with the start of a new process and the time a server stayed away (up to 3 s). Victims'\n"
        "chunks: the median time until another worker commits the victim's chunks. Naive: rows lost / doubled, over\n"
        "its runs.\n" + _calls([line for line in runs if line["only"] in marks and "calls" in line])
    )


def _calls(runs: Sequence[Line]) -> str:
    """What became of the calls of sweeps whose servers failed over."""
    if not runs:
        return ""
    failovers = sum(len(line["faults"]) for line in runs)
    calls = [line["calls"] for line in runs]
    served, recorded = (sum(one[name] for one in calls) for name in ("served", "recorded"))
    again = [one["served"] - one["recorded"] for one in calls]
    exact = [
        one["repaid"] + one["lost"] == more and one["attempts"] == one["paid"] == one["served"]
        for one, more in zip(calls, again, strict=True)
    ]
    return (
        f"\nIn {len(runs)} sweeps with {failovers} failovers agents served {served:,} calls for {recorded:,} outputs,\n"
        f"and {sum(again):,} more were paid ({max(again):,} at most in one run). {sum(exact)} runs reported exactly\n"
        "those in `repaid` and `lost`, and the attempts and the cost that their agents had counted.\n"
    )


def _row(title: str, runs: Sequence[Line], fault: str) -> tuple[object, ...]:
    ours = [line for line in runs if line["setup"] == OURS]
    measured = [one for line in ours for one in line["recoveries"] if not fault or one["fault"] == fault]
    times = sorted(one["seconds"] for one in measured if one["seconds"] is not None)
    held = [one["held"] for one in measured if one["held"] is not None]
    late = times[math.ceil(0.95 * len(times)) - 1] if times else None
    return (
        title,
        len(ours),
        sum(line["equal"] for line in ours),
        sum(line["lost"] for line in ours),
        sum(line["doubled"] for line in ours),
        f"{statistics.median(times):.1f} s" if times else "-",
        "-" if late is None else f"{late:.1f} s",
        f"{statistics.median(held):.1f} s" if held else "-",
        *(_naive([line for line in runs if line["setup"] == setup]) for setup in _NAIVE),
    )


def _naive(runs: Sequence[Line]) -> str:
    if not runs:
        return "-"
    lost, doubled = sum(line["lost"] for line in runs), sum(line["doubled"] for line in runs)
    return f"{lost:,} / {doubled:,} in {len(runs)}"


def current() -> list[Line]:
    """The results file's lines."""
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def page() -> str:
    """docs/reliability.md as it should be, with the table of rounds too."""
    text = _with(PAGE.read_text(encoding="utf-8"), BEGIN, END, render(current()))
    return _with(text, rounds.BEGIN, rounds.END, rounds.render(rounds.current()))


def _with(text: str, begin: str, end: str, between: str) -> str:
    head, began, rest = text.partition(begin)
    _, ended, tail = rest.partition(end)
    assert ended, f"{PAGE} has lost the markers of a table"
    return head + began + "\n" + between + "\n" + ended + tail


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
