"""Evaluating files in this process: the reference, the same for every packing and chunk size."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError, InputError, NothingEvaluated, UsageError
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.canonical import digest
from evalq.evalcore.records.cut import Cutter
from tests.contract.specimens import Summing
from tests.contract.test_suite_catches import SummingCsv
from tests.samples import sampled

ROWS = [json.dumps({"id": f"r{n}", "value": n / 7}) for n in range(50)]
TEXT = ("\n".join([*ROWS[:20], "", "no row", *ROWS[20:]]) + "\n").encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An input with a blank and a broken line."""
    path = tmp_path / "values.jsonl"
    path.write_bytes(TEXT)
    return path


def test_the_report_and_the_lines_describe_the_input(path: Path) -> None:
    """Counts, digest, faults and one line a record."""
    done = evaluate_files(Summing(), [path], {"shift": 1})
    assert done.report["inputs"] == [{"name": "values.jsonl", "sha256": digest(TEXT), "records": 51}]
    assert done.report["params"] == {"shift": 1.0, "strict": False}
    assert done.report["results"]["values.jsonl"]["count"] == 50
    assert done.report["faults"] == [{"where": "values.jsonl:22", "reason": "no row"}]
    records = list(done.records())
    assert [record["id"] for record in records if record["id"]] == [f"r{n}" for n in range(50)]
    assert records[20] == {"record": "values.jsonl:22", "id": None, "status": "ERROR"}


@pytest.mark.parametrize("size", [1, 2, 7, 51, 1000])
def test_the_chunk_size_changes_nothing(path: Path, size: int) -> None:
    """Not a byte of report or lines."""
    whole, cut = evaluate_files(Summing(), [path]), evaluate_files(Summing(), [path], chunk_size=size)
    assert (cut.report, cut.lines) == (whole.report, whole.lines)


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".zst", lambda data: zstandard.ZstdCompressor().compress(data))]
)
def test_packing_changes_nothing(path: Path, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    """The digest is that of the data, the name is that of the file unpacked."""
    packed = path.with_name(path.name + suffix)
    packed.write_bytes(pack(TEXT))
    assert evaluate_files(Summing(), [packed]) == evaluate_files(Summing(), [path])


def test_inputs_of_a_folder_are_results_of_their_own(path: Path) -> None:
    """In name order, the lines of one after those of the other."""
    path.with_name("more.jsonl").write_text(ROWS[0])
    done = evaluate_files(Summing(), [path.parent])
    assert [entry["name"] for entry in done.report["inputs"]] == ["more.jsonl", "values.jsonl"]
    assert done.report["records"]["total"] == len(done.lines) == 52
    assert next(done.records())["record"] == "more.jsonl:1"


@pytest.mark.parametrize("size", [None, 1, 2])
def test_a_csv_that_is_partly_no_utf8_has_its_faults_on_their_lines(tmp_path: Path, size: int | None) -> None:
    """The same ones under any chunking, in the order of the file."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b'id,value\na,1\n"b\n\xff",2\nc\nd,3\n\xfe,4\n')
    report = evaluate_files(SummingCsv(), [path], chunk_size=size).report
    assert [fault["where"] for fault in report["faults"]] == ["rows.csv:4", "rows.csv:5", "rows.csv:7"]
    assert report["records"]["scored"] == 2


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (b"", NothingEvaluated, "no records in .*rows.csv"),
        (b"id,value\n", NothingEvaluated, "no records"),
        (b"a,b\n1,2\n", InputError, "rows.csv:1: missing columns: id, value"),
        (b"id;value\n1;2\n", InputError, "rows.csv:1: fields separated by semicolons"),
        (b'id,value\n"a,1\n', InputError, "rows.csv:2: broken quoting: a quote opened here is never closed"),
    ],
)
def test_what_cannot_be_evaluated_says_why(tmp_path: Path, content: bytes, error: type[Exception], said: str) -> None:
    """Empty, without rows, without the columns, or not to be cut."""
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(error, match=said):
        evaluate_files(SummingCsv(), [path])


def test_an_evaluator_may_be_given_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is registered; its params are checked first."""
    monkeypatch.setattr(plugins, "get", {"summing": Summing()}.__getitem__)
    assert evaluate_files("summing", [path]).report["evaluator"] == "summing"
    with pytest.raises(ConfigError, match="params: wrong parameters\n  shfit: unknown key"):
        evaluate_files("summing", ["nowhere"], {"shfit": 1})


@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b"\n \n\n", b"\xef\xbb\xbf\n"])
def test_blank_lines_before_a_header_are_left_out_here_and_in_a_run(tmp_path: Path, blank: bytes) -> None:
    """In this process and as a job: one report, lines numbered as they stand in the file."""
    path = tmp_path / "rows.csv"
    path.write_bytes(blank + b"id,value\na,1\nb,x\n")
    done = evaluate_files(SummingCsv(), path)
    at = blank.count(b"\n") + 2
    assert [line["record"] for line in done.records()] == [f"rows.csv:{at}", f"rows.csv:{at + 1}"]
    assert done.report["records"]["scored"] == 1
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", "rows.csv", ())
        assert cutter.columns == ("id", "value")
    path.write_bytes(blank + b"nid,value\na,1\n")
    with pytest.raises(InputError, match=f"rows.csv:{at - 1}: missing column: id"):
        evaluate_files(SummingCsv(), path)


def test_one_path_needs_no_list(path: Path) -> None:
    """As text or as a path it is one input, not a list of its letters."""
    assert evaluate_files(Summing(), str(path)) == evaluate_files(Summing(), path) == evaluate_files(Summing(), [path])


def test_options_are_what_the_command_takes(tmp_path: Path) -> None:
    """A golden set and its outputs, as with `evalq vs GOLDEN --outputs FILE`; without outputs it says so."""
    vs = plugins.get("vs")
    asked = sampled(vs, tmp_path, 80)
    (outputs,) = asked.options["outputs"]
    done = evaluate_files("vs", asked.inputs[0], options={"outputs": Path(outputs)})
    by_params = evaluate_files("vs", [outputs], vs.command.request(asked).params)
    assert done == by_params
    assert done.report["records"]["scored"] > done.report["records"]["errors"]
    chosen = evaluate_files("vs", asked.inputs, options={"outputs": [outputs], "level": "Full"})
    assert chosen.report["params"]["level"] == "Full"
    with pytest.raises(UsageError, match="vs needs recorded outputs or a target: evalq vs GOLDEN --outputs"):
        evaluate_files("vs", outputs)
    with pytest.raises(
        UsageError, match="options: vs has no 'golden'; it has: agent, all, lang, level, map, outputs, registry"
    ):
        evaluate_files("vs", outputs, options={"golden": asked.inputs[0]})
    strict = evaluate_files(plugins.get("verification"), _transcript(tmp_path), options={"strict": True})
    assert strict.report["params"]["strict"] is True


def _transcript(folder: Path) -> Path:
    path = folder / "transcripts.jsonl"
    path.write_text('{"actual_output": "Tests passed."}\n')
    return path
