"""The files of -o: a module for each ending, found by its name."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, UsageError, WireError
from evalq.producer.cli import cli
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.outputs import check_output, read_files, render, write_output
from evalq.producer.outputs.requested import FORMATS
from evalq.producer.outputs.tables import write_csv, write_parquet
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.samples import sampled
from tests.unit.producer.quiet import QUIET


def test_the_formats_that_there_are() -> None:
    """One that disappears would be missed."""
    assert {".csv", ".html", ".json", ".jsonl", ".md", ".parquet", ".xml", ".yaml"} <= set(FORMATS)


def test_a_format_that_is_added_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken, and stands among those that are offered."""
    monkeypatch.setitem(FORMATS, ".txt", lambda path, folder, _evaluator, _options: path.write_text(folder.info().run))
    check_output(Path("a.txt"))
    with pytest.raises(UsageError, match=r"unknown suffix '\.pdf'; there are .*\.txt, \.xml, \.yaml"):
        check_output(Path("a.pdf"))


def test_each_format_writes_a_finished_run(tmp_path: Path) -> None:
    """Texts as they are shown, records as they are kept."""
    evaluator = plugins.get("planagent")
    job = Job.start(evaluator, sampled("planagent", tmp_path, 20), RunOptions(out=tmp_path / "run"))
    report = carry_out(job, Backend(Settings(), inline=True), QUIET)
    for ending in FORMATS:
        write_output(tmp_path / "out" / f"a{ending}", job.folder, evaluator, {})
    written = {path.suffix: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert sorted(written) == sorted(FORMATS)
    assert written[".jsonl"] == job.folder.records.read_bytes()
    for ending, fmt in ((".json", "json"), (".yaml", "yaml"), (".md", "markdown")):
        assert written[ending].decode() == render(fmt, evaluator, report, {})


def test_no_file_that_the_run_reads_is_written_over(tmp_path: Path) -> None:
    """Recorded answers may have been paid for: neither inputs, nor files of options, by any name or pattern."""
    (tmp_path / "outputs.jsonl").write_text("{}\n")
    (tmp_path / "cases.json").write_text("{}")
    given = Request([str(tmp_path / "*.json")], {}, {"outputs": (str(tmp_path / "outputs.jsonl"),), "labels": None})
    reads = read_files(plugins.get("checks"), given, None)
    for name in ("outputs.jsonl", "./cases.json"):
        with pytest.raises(UsageError, match="the command reads this file"):
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


def test_a_report_is_not_written_over_what_its_run_read_or_consists_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By no command: recorded answers stay, and so does the run; its report and records are written as they are."""
    monkeypatch.chdir(tmp_path)
    Path("cases.yaml").write_text("cases: [{id: a, checks: [{equals: x}]}]")
    Path("outputs.jsonl").write_text('{"case": "a", "output": "x"}\n')
    asked = ["checks", "cases.yaml", "--outputs", "outputs.jsonl", "--inline", "--out", "run"]
    assert CliRunner().invoke(cli, asked).exit_code == 0
    for command in (["report", "run"], ["resume", "run"], ["watch", "run"], ["retry", "run", "--errors"]):
        for name in ("outputs.jsonl", "run/run.json", "run/results.yaml"):
            before = Path(name).read_bytes()
            ended = CliRunner().invoke(cli, [*command, "-o", name])
            assert isinstance(ended.exception, UsageError)
            assert "name another" in str(ended.exception)
            assert Path(name).read_bytes() == before
    records = Path("run/records.jsonl").read_bytes()
    assert CliRunner().invoke(cli, ["report", "run", "-o", "run/records.jsonl"]).exit_code == 0
    assert Path("run/records.jsonl").read_bytes() == records


def test_a_decision_is_not_written_over_what_decides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither over cases of the suite, nor over results, nor over the policy."""
    monkeypatch.chdir(tmp_path)
    policy = '{"gates": [{"metric": "checks.pass_rate", "min": 0.1}]}'
    cases = '{"cases": [{"id": "a", "checks": [{"equals": "x"}]}]}'
    run = '{"evaluator": "checks", "cases": "cases.json", "outputs": "outputs.jsonl"}'
    texts = {
        "cases.json": cases,
        "outputs.jsonl": '{"case": "a", "output": "x"}\n',
        "policy.json": policy,
        "suite.json": f'{{"runs": [{run}], "policy": {policy}, "outputs": ["cases.json"]}}',
    }
    for name, text in texts.items():
        Path(name).write_text(text)
    asked = ["checks", "cases.json", "--outputs", "outputs.jsonl", "--inline", "--out", "run", "--format", "json"]
    Path("results.json").write_text(CliRunner().invoke(cli, asked).stdout)
    results = Path("results.json").read_text()
    for words in (
        ["run", "suite.json", "--inline"],
        ["gate", "run", "--policy", "policy.json", "-o", "policy.json"],
        ["gate", "results.json", "--policy", "policy.json", "-o", "results.json"],
        ["compare", "results.json", "run", "-o", "results.json"],
        ["check-regressions", "results.json", "run", "-o", "results.json"],
    ):
        ended = CliRunner().invoke(cli, words)
        assert isinstance(ended.exception, UsageError | ConfigError), words
        assert "the command reads this file" in str(ended.exception)
    assert {name: Path(name).read_text() for name in texts} == texts
    assert Path("results.json").read_text() == results


def test_a_folder_in_a_files_place_is_reported_before_anything_is_computed(tmp_path: Path) -> None:
    """And not when the run is over."""
    (tmp_path / "a.json").mkdir()
    with pytest.raises(UsageError, match="a folder has this name"):
        check_output(tmp_path / "a.json")


def _written(write: Callable[..., None], folder: Path, *records: dict[str, Any]) -> Path:
    """The file that a format makes of ``records``."""
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    run: Any = SimpleNamespace(reported=True, records=path, path=folder, own=folder.joinpath)
    write(folder / "written", run, None, {})
    return folder / "written"


def test_a_whole_number_stays_one_where_another_record_has_none(tmp_path: Path) -> None:
    """Also one that no fraction of a computer's is equal to."""
    records = {"score": 5}, {"score": None}, {"score": 2**53 + 1}, {"other": 1.0}
    assert _written(write_csv, tmp_path, *records).read_text() == "score,other\n5,\n,\n9007199254740993,\n,1.0\n"
    import pyarrow.parquet as pq

    rows = pq.read_table(_written(write_parquet, tmp_path, *records)).to_pylist()
    assert [row["score"] for row in rows] == [5, None, 2**53 + 1, None]


def test_a_return_in_a_cell_begins_no_row(tmp_path: Path) -> None:
    """Readers take it for the end of a line where it stands without quotes."""
    text = _written(write_csv, tmp_path, {"a": "x\ry", "b": 1}, {"a": "x", "b": 2}).read_bytes().decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["a", "b"], ["x\ry", "1"], ["x", "2"]]


def test_a_column_of_several_types_is_one_of_texts_in_parquet(tmp_path: Path) -> None:
    """As is one of numbers that it has no room for; whole numbers among fractions are fractions."""
    import pyarrow.parquet as pq

    records = {"a": 1, "b": 2**63, "c": 2**53 + 1}, {"a": "x", "b": 1, "c": 0.5}, {"a": True}
    rows = pq.read_table(_written(write_parquet, tmp_path, *records)).to_pylist()
    assert [list(row.values()) for row in rows] == [
        ["1", "9223372036854775808", float(2**53)],
        ["x", "1", 0.5],
        ["true", None, None],
    ]


@pytest.mark.parametrize("ending", ["csv", "parquet", "html"])
def test_a_damaged_record_is_reported_by_its_line(ending: str, tmp_path: Path) -> None:
    """And no traceback; no half of a file is left."""
    evaluator = plugins.get("planagent")
    job = Job.start(evaluator, sampled("planagent", tmp_path, 20), RunOptions(out=tmp_path / "run"))
    carry_out(job, Backend(Settings(), inline=True), QUIET)
    lines = job.folder.records.read_bytes().splitlines(keepends=True)
    job.folder.records.write_bytes(b"".join([*lines[:4], lines[4][:20] + b"\n", *lines[5:]]))
    with pytest.raises(WireError, match=r"records\.jsonl:5 is damaged|line 5 of records\.jsonl is damaged"):
        write_output(tmp_path / "out" / f"a.{ending}", job.folder, evaluator, {})
    assert not list((tmp_path / "out").iterdir())
