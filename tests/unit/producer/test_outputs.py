"""The files of -o: a module for each ending, found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import registry
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import UsageError
from evalq.producer.cli import cli
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.outputs import check_output, formats, read_files, render, write_output
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


def test_no_file_that_the_run_reads_is_written_over(tmp_path: Path) -> None:
    """Recorded answers may have been paid for: neither inputs, nor files of options, by any name or pattern."""
    (tmp_path / "outputs.jsonl").write_text("{}\n")
    (tmp_path / "cases.json").write_text("{}")
    given = Request([str(tmp_path / "*.json")], {}, {"outputs": (str(tmp_path / "outputs.jsonl"),), "labels": None})
    reads = read_files(registry.get("checks"), given, None)
    for name in ("outputs.jsonl", "./cases.json"):
        with pytest.raises(UsageError, match="the run reads this file"):
            check_output(tmp_path / name, reads)
    check_output(tmp_path / "rows.jsonl", reads)


def test_a_command_does_not_write_over_what_it_reads(tmp_path: Path) -> None:
    """It ends before anything is computed, and the file is as it was."""
    cases, outputs = tmp_path / "cases.json", tmp_path / "outputs.jsonl"
    cases.write_text('[{"id": "a", "expected": "x"}]')
    outputs.write_text('{"case": "a", "output": "x"}\n')
    asked = ["checks", str(cases), "--outputs", str(outputs), "--inline", "--out", str(tmp_path / "run")]
    for path in (cases, outputs):
        before = path.read_bytes()
        ended = CliRunner().invoke(cli, [*asked, "-o", str(path)])
        assert isinstance(ended.exception, UsageError)
        assert (path.read_bytes(), (tmp_path / "run").exists()) == (before, False)
