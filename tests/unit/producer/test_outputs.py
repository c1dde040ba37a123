"""The files of -o: a module for each ending, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.contract import registry
from evalq.evalcore.errors import UsageError
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.outputs import check_output, formats, render, write_output
from evalq.producer.outputs.asked import endings
from evalq.producer.runs.backend import Backend
from evalq.producer.runs.execute import carry_out
from evalq.workers.settings import Settings
from tests.samples import sampled
from tests.unit.producer.quiet import QUIET


def test_the_formats_are_those_of_the_folder() -> None:
    """Their names are the endings; one that disappears would be missed."""
    assert {".csv", ".html", ".json", ".jsonl", ".md", ".parquet", ".xml", ".yaml"} <= set(endings())


def test_a_format_that_is_added_is_one_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found, asked whether it can write, and stands among those that are offered."""
    (tmp_path / "txt.py").write_text(
        "def check(path):\n    assert path.name != 'no.txt'\n\n"
        "def write(path, folder, evaluator, options):\n    path.write_text(folder.info().run)\n"
    )
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path)])
    assert ".txt" in endings()
    with pytest.raises(AssertionError):
        check_output(Path("no.txt"))
    with pytest.raises(UsageError, match=r"unknown suffix '\.pdf'; there are .*\.txt, \.xml, \.yaml"):
        check_output(Path("a.pdf"))


def test_each_format_writes_a_finished_run(tmp_path: Path) -> None:
    """Texts as they are shown, records as they are kept."""
    evaluator = registry.get("planagent")
    job = Job.start(evaluator, sampled("planagent", tmp_path, 20), RunOptions(out=tmp_path / "run"))
    report = carry_out(job, Backend(Settings(), inline=True), QUIET)
    for ending in endings():
        write_output(tmp_path / "out" / f"a{ending}", job.folder, evaluator, {})
    written = {path.suffix: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(written) == endings()
    assert written[".jsonl"] == job.folder.records.read_bytes()
    for ending, fmt in ((".json", "json"), (".yaml", "yaml"), (".md", "markdown")):
        assert written[ending].decode() == render(fmt, evaluator, report, {})
