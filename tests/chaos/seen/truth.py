"""What was true: from the journal of the processes, the driver's own looks, and the run's manifest and report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Look(NamedTuple):
    """The driver's own look at a moment: messages in the queue (None: no server), workers that exist, that run."""

    at: float
    queue: int | None
    present: int
    running: int


class Truth:
    """``journal``: the lines of `tests.chaos.seen.talking`. Times are seconds since 1970."""

    def __init__(self, journal: Iterable[Mapping[str, Any]], looks: Iterable[Look] = ()) -> None:
        self._looks = sorted(looks)
        self._sent: dict[int, float] = {}
        self._done: dict[int, float] = {}
        self._messages = 0
        self._begun: Counter[int] = Counter()
        self._became: Counter[str] = Counter()
        for line in journal:
            if line["what"] == "sent":
                self._messages += len(line["seqs"])
                for seq in line["seqs"]:
                    self._sent[seq] = min(self._sent.get(seq, line["at"]), line["at"])
            elif line["what"] == "begun":
                self._begun[line["seq"]] += 1
            else:
                self._became[line["became"]] += 1
                if line["became"] == "committed":
                    self._done[line["seq"]] = min(self._done.get(line["seq"], line["at"]), line["at"])

    def totals(self) -> dict[str, int]:
        """Over the whole run: messages and tasks, as Celery would count them, and what came twice."""
        begun, ended = self._begun.total(), self._became.total()
        return {
            "sent": self._messages,
            "again": self._messages - len(self._sent),
            "begun": begun,
            "rejected": begun - ended,
            "failed": self._became["raised"],
            "succeeded": ended - self._became["raised"],
            "duplicates": self._became["duplicate"],
        }

    def done(self, at: float) -> int:
        """Chunks whose answer was committed by then, each once."""
        return sum(when <= at for when in self._done.values())

    def oldest(self, at: float) -> float:
        """Seconds since the first message of the oldest chunk that had no answer then; 0 where there is none."""
        open_since = [when for seq, when in self._sent.items() if when <= at and self._done.get(seq, at + 1) > at]
        return at - min(open_since, default=at)

    def look(self, at: float) -> Look:
        """The driver's last look up to a moment, or its first."""
        return max((look for look in self._looks if look.at <= at), default=self._looks[0])


def run_totals(out: Path) -> dict[str, int]:
    """Chunks and records of a finished run's manifest, dead records of its report."""
    chunks = json.loads((out / "manifest.json").read_text())["chunks"]
    report = json.loads((out / "report.json").read_text())
    records, dead = sum(chunk["records"] for chunk in chunks), report["records"]["dead"]
    assert report["records"]["total"] == records, f"{out}: the report has other records than the manifest"
    return {"chunks": len(chunks), "records": records - dead, "dead": dead}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines; none when it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
