"""Opening a finished run again takes no more memory, however many records it has."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from evalq._run import open_run
from evalq.evalcore.contract import plugins
from evalq.evalcore.model.canonical import canonical_line
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs import tables, write_output
from evalq.producer.outputs.cases import cases_of
from evalq.producer.page import packing
from evalq.producer.page import packing as page_writing
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.samples import sampled
from tests.unit.producer.quiet import QUIET

FEW, MANY = 500, 3_000
BLOCK = 100
SLACK = 400_000
"""Bytes; the further 2,500 lines are 800,000."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of 200 rows."""
    top = tmp_path_factory.mktemp("reopening")
    job = Job.start(plugins.get("planagent"), sampled("planagent", top, 200), RunOptions(out=top / "run"))
    carry_out(job, Backend(Settings(), inline=True), QUIET)
    return job.folder


def lengthened(folder: RunFolder, lines: int) -> RunFolder:
    """The run with its records over and over, as if its input had been so long."""
    with folder.records.open("rb") as stream:
        own = stream.readlines()[:200]
    folder.records.write_bytes(b"".join(islice(cycle(own), lines)))
    report = folder.report()
    report["records"]["total"] = lines
    folder.write("report.json", canonical_line(report))
    (folder.path / "cases.json").unlink(missing_ok=True)
    return folder


def peak(act: Callable[[], object]) -> int:
    """Most bytes that Python held at once while ``act`` ran."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("ending", ["csv", "html", "json", "jsonl", "md", "parquet", "xml", "yaml"])
def test_a_file_of_many_records_is_written_in_the_memory_of_few(
    ending: str, finished: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every format of -o streams: six times the records need no more than a block of them."""
    monkeypatch.setattr(tables, "_ROWS_AT_ONCE", BLOCK)
    monkeypatch.setattr(packing, "_ROWS", BLOCK)
    monkeypatch.setattr(packing, "_EXPLAINED", BLOCK)
    monkeypatch.setattr(page_writing, "_IN_MEMORY", 1)
    evaluator, found = plugins.get("planagent"), []
    for lines in (BLOCK, FEW, MANY):  # the first pays for imports, and is not looked at
        folder = lengthened(finished, lines)
        path = tmp_path / f"a.{ending}"
        found.append(peak(lambda path=path, folder=folder: write_output(path, folder, evaluator, {})))  # type: ignore[misc]  # mypy knows no defaults of lambdas
    assert found[2] < found[1] + SLACK, found


@pytest.mark.parametrize(
    "act",
    [
        lambda folder: cases_of(folder),
        lambda folder: sum(map(len, open_run(folder.path).record_batches(BLOCK))),
        lambda folder: (folder.info(), folder.report()),
    ],
    ids=["cases, as compare and gate read them", "frames", "status"],
)
def test_looking_at_many_records_takes_the_memory_of_few(
    act: Callable[[RunFolder], object], finished: RunFolder
) -> None:
    """What compare, gate, notebooks and status read of a run: as many lines at once, whatever their number."""
    found = []
    for lines in (BLOCK, FEW, MANY):
        folder = lengthened(finished, lines)
        found.append(peak(lambda folder=folder: act(folder)))  # type: ignore[misc]  # mypy knows no defaults of lambdas
    assert found[2] < found[1] + SLACK, found


def test_the_measure_sees_what_is_held(finished: RunFolder) -> None:
    """Reading all lines at once, which none of these does, would be over the limit."""
    few, many = (peak(lengthened(finished, lines).records.read_bytes) for lines in (FEW, MANY))
    assert many > few + SLACK
