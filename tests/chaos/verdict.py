"""Whether a run under fire gave what the calm run gave: bytes, rows, and the ledger's own counts."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.subjects import record_keys
from tests.integration.harness import info

TOP = Path(__file__).parents[2]


@dataclass(frozen=True)
class Verdict:
    """What is counted; ``why`` is empty when all is well."""

    equal: bool
    lost: int
    doubled: int
    divergent: int
    why: str

    @property
    def good(self) -> bool:
        """Equal bytes, no row lost or twice, no divergence."""
        return self.equal and not (self.lost or self.doubled or self.divergent)


def judge(out: Path, calm: Path, exit_code: int | None, said: str, computed: Path | None = None) -> Verdict:
    """Compare the run folder ``out`` with that of the calm run. ``exit_code``: None for a run that did not end.

    ``computed``: the folder of who computed it, where that is another one: records and counts are there alone.
    """
    home = computed or out
    found = {"report.json": out, "records.jsonl": home}
    differing = [name for name, folder in found.items() if _bytes(folder / name) != _bytes(calm / name)]
    lost, doubled = count(record_keys(home / "records.jsonl"), record_keys(calm / "records.jsonl"))
    more = _total(out) - _total(calm)
    progress: dict[str, Any] = info(home).get("progress") or {}
    faults = [f"{name} differs" for name in differing]
    if exit_code != 0:
        faults.insert(0, "did not end" if exit_code is None else f"exit {exit_code}: {said}")
    divergent = int(progress.get("divergent", 0))
    return Verdict(not differing and exit_code == 0, max(lost, -more), max(doubled, more), divergent, "; ".join(faults))


def count(found: list[str], wanted: list[str]) -> tuple[int, int]:
    """Rows that are wanted and not found, and rows found more than once or not wanted."""
    counts = Counter(found)
    lost = sum(key not in counts for key in set(wanted))
    return lost, len(found) - (len(set(wanted)) - lost)


@cache
def code() -> tuple[str, bool]:
    """The commit of this tree, and whether anything differs from it."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "evalq", "evalcore", "workers", "producer", "tests")
    return git("rev-parse", "--short=12", "HEAD"), bool(changed)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _total(folder: Path) -> int:
    """Records that a report counts; a missing report counts none."""
    path = folder / "report.json"
    return int(msgspec.json.decode(path.read_bytes())["records"]["total"]) if path.exists() else 0
