"""A run that was killed half way, for tests of what commands do with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run.chunks import Collector, drive_inline


class _Killed(Exception):
    pass


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Of eight chunks of ./rows.csv four are in the journal of evalq-runs/run, and nobody drives it."""
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 40, seed=7)
    asked = RunOptions(out=Path("evalq-runs/run"), chunk_size=5, once="k")
    job = Job.start(plugins.get("planagent"), Request(["rows.csv"], {}, {}), asked)
    left = 4

    def watch(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise _Killed

    collector = Collector(job)
    with job.folder.driving(), pytest.raises(_Killed):
        drive_inline(job, collector, watch)
    collector.close()
    return RunFolder(job.folder.path)
