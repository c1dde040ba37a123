"""Recorded outputs in any layout: what is read, what is guessed, and what each message says."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
import zstandard

import evalq
from evalq.evalcore.errors import ConfigError, EvalqError, InputError, UsageError
from evalq.evalcore.evaluators.checks.inputs import FIELDS
from evalq.evalcore.fold import Evaluation, evaluate_files
from evalq.evalcore.records.layouts import mapped_keys

ANSWERS = {"1": "Paris", "2": "4", "3": "no idea"}
EXPECTED = {"1": "Paris", "2": "4", "3": "Rome"}
Rows = list[dict[str, Any]]


def rows(case: str, output: Callable[[str], Any], expected: str = "", *, number: bool = False) -> Rows:
    """A record for each answer: its keys ``case`` and ``expected``, and what ``output`` makes of the answer."""
    return [
        {case: int(name) if number else name, **output(text), **({expected: EXPECTED[name]} if expected else {})}
        for name, text in ANSWERS.items()
    ]


def as_jsonl(records: Rows) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def as_csv(records: Rows, delimiter: str = ",", encoding: str = "utf-8", newline: str = "\n") -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(records[0]), delimiter=delimiter, lineterminator=newline)
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode(encoding)


def as_parquet(records: Rows) -> bytes:
    out = io.BytesIO()
    pandas.DataFrame(records).to_parquet(out)
    return out.getvalue()


def plain(text: str) -> dict[str, Any]:
    return {"answer": text}


def nested(text: str) -> dict[str, Any]:
    return {"response": {"text": text, "model": "m"}}


def batch_api(text: str) -> dict[str, Any]:
    return {"response": {"body": {"choices": [{"message": {"role": "assistant", "content": text}}]}}}


LAYOUTS: dict[str, tuple[str, bytes, str]] = {
    "lines": ("a.jsonl", as_jsonl(rows("case", lambda text: {"output": text})), ""),
    "lines-nested": (
        "a.jsonl",
        as_jsonl(rows("qid", nested, "gold")),
        "case=qid,output=response.text,expected=gold",
    ),
    "lines-numbers": ("a.ndjson", as_jsonl(rows("id", plain, number=True)), "case=id,output=answer"),
    "lines-packed": (
        "a.jsonl.zst",
        zstandard.ZstdCompressor().compress(as_jsonl(rows("id", plain))),
        "case=id,output=answer",
    ),
    "batch-api": (
        "a.jsonl",
        as_jsonl(rows("custom_id", batch_api)),
        "case=custom_id,output=response.body.choices.0.message.content",
    ),
    "samples": (
        "samples.jsonl",
        as_jsonl(rows("doc_id", lambda text: {"resps": [[text]]}, "target", number=True)),
        "case=doc_id,output=resps.0.0,expected=target",
    ),
    "list": ("a.json", json.dumps(rows("name", plain), indent=1).encode(), "case=name,output=answer"),
    "csv": ("a.csv", as_csv(rows("case", lambda text: {"output": text})), ""),
    "csv-mapped": (
        "a.csv",
        as_csv(rows("question_id", lambda text: {"prediction": text}, "label")),
        "case=question_id,output=prediction,expected=label",
    ),
    "csv-packed": ("a.csv.gz", gzip.compress(as_csv(rows("id", plain))), "case=id,output=answer"),
    "csv-json-cells": (
        "a.csv",
        as_csv(rows("id", lambda text: {"response": json.dumps({"text": text})})),
        "case=id,output=response.text",
    ),
    "tabs": ("a.tsv", as_csv(rows("id", plain), "\t"), "case=id,output=answer"),
    "parquet": ("a.parquet", as_parquet(rows("uid", plain, "gold")), "case=uid,output=answer,expected=gold"),
    "parquet-nested": ("a.parquet", as_parquet(rows("idx", nested, number=True)), "case=idx,output=response.text"),
}


def evaluated(folder: Path, name: str, data: bytes, mapping: str = "", *, cases: bool = True) -> Evaluation:
    """The evaluation of a file of outputs."""
    (folder / name).write_bytes(data)
    file = folder / "cases.jsonl"
    file.write_bytes(as_jsonl([{"id": name, "expected": text} for name, text in EXPECTED.items()]))
    options = {"outputs": [folder / name], **({"map": mapping} if mapping else {})}
    return evaluate_files("checks", [file] if cases else [], options=options)


@pytest.mark.parametrize(("name", "data", "mapping"), LAYOUTS.values(), ids=LAYOUTS)
def test_each_layout_gives_the_same_results(tmp_path: Path, name: str, data: bytes, mapping: str) -> None:
    """Two of three answers are right, and each line is named by its place in the user's file."""
    found = evaluated(tmp_path, name, data, mapping)
    assert found.report["results"]["outputs"] == {"total": 3, "passed": 2, "failed": 1, "errors": 0}
    first = 2 if ".csv" in name or ".tsv" in name else 1
    source = name.removesuffix(".gz").removesuffix(".zst")
    assert [line["record"] for line in found.records()] == [f"{source}:{first + number}" for number in range(3)]
    if "expected=" in mapping:
        alone = evaluated(tmp_path, name, data, mapping, cases=False)
        assert alone.report["results"] == found.report["results"]


@pytest.mark.parametrize(
    ("name", "data", "mapping"),
    [layout for key, layout in LAYOUTS.items() if layout[2] and key != "csv-json-cells"],
    ids=[key for key, layout in LAYOUTS.items() if layout[2] and key != "csv-json-cells"],
)
def test_the_mapping_of_each_layout_is_guessed(tmp_path: Path, name: str, data: bytes, mapping: str) -> None:
    """Without it the run stops, and the message has the mapping to give."""
    with pytest.raises(InputError, match="a record needs case and output; none of the first 3 records does") as caught:
        evaluated(tmp_path, name, data)
    assert str(caught.value).endswith(f"Try --map {mapping}")


def test_a_folder_of_answers_and_a_data_frame_are_layouts_too(tmp_path: Path) -> None:
    """Neither has lines of its own."""
    folder = tmp_path / "answers"
    folder.mkdir()
    for name, text in ANSWERS.items():
        (folder / f"{name}.txt").write_text(text)
    cases = tmp_path / "cases.jsonl"
    cases.write_bytes(as_jsonl([{"id": name, "expected": text} for name, text in EXPECTED.items()]))
    wanted = evaluate_files("checks", [cases], options={"outputs": [folder]}).report["results"]["by_case"]
    frame = pandas.DataFrame(rows("qid", plain, number=True))
    options = {"outputs": frame, "map": "case=qid,output=answer"}
    assert evalq.evaluate("checks", cases, options=options).report["results"]["by_case"] == wanted
    kept = evalq.evaluate("checks", cases, options=options, folder=tmp_path / "run")
    assert kept.report["results"]["by_case"] == wanted
    once = [evalq.evaluate("checks", cases, options=options, once="key", folder=tmp_path / "once") for _ in range(2)]
    assert once[0].report == once[1].report == kept.report


def test_rows_of_several_lines_keep_the_line_that_they_begin_on(tmp_path: Path) -> None:
    """Record lines and faults name the row of the user's table, whatever is in the cells above."""
    data = b'case,output\r\n1,"Paris,\r\n\r\nFrance"\r\n,\r\n2,4\r\n'
    found = evaluated(tmp_path, "a.csv", data)
    assert [line["record"] for line in found.records()] == ["a.csv:2", "a.csv:6"]


def test_the_last_record_of_a_thousand_may_be_the_first_with_a_result(tmp_path: Path) -> None:
    """A thousand records are looked at, and no more."""
    other, good = b'{"x":1}\n', b'{"case":"1","output":"Paris"}\n'
    assert evaluated(tmp_path, "a.jsonl", other * 999 + good).report["records"]["scored"] == 1
    with pytest.raises(InputError, match=r"a\.jsonl:1: .*none of the first 1,000 records.*Keys: x \(1,000\)"):
        evaluated(tmp_path, "a.jsonl", other * 1000 + good)


def test_expected_answers_of_the_outputs_fill_the_cases_that_have_none(tmp_path: Path) -> None:
    """A case's own answer stays; a file of defaults alone says how the recorded cases are checked."""
    outputs = tmp_path / "a.csv"
    outputs.write_text("qid,answer,gold\n1,PARIS,Paris\n2,5,4\n")
    options = {"outputs": [outputs], "map": "case=qid,output=answer,expected=gold"}
    own = tmp_path / "own.jsonl"
    own.write_bytes(as_jsonl([{"id": "1"}, {"id": "2", "expected": "5"}]))
    assert evaluate_files("checks", [own], options=options).report["results"]["outputs"]["passed"] == 1
    defaults = tmp_path / "defaults.yaml"
    defaults.write_text("defaults:\n  checks: [{equals: '{{expected}}', ignore-case: true}]\n")
    assert evaluate_files("checks", [defaults], options=options).report["results"]["outputs"]["passed"] == 1
    outputs.write_text("qid,answer,gold\n1,PARIS,Paris\n1,5,4\n")
    with pytest.raises(InputError, match=r"a\.csv:3: gold: '4' here, and 'Paris' on line 2 for the same case"):
        evaluate_files("checks", [], options=options)


def test_a_table_without_parquets_reader_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow is an extra."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"a\.parquet: reading Parquet needs pyarrow: pip install 'evalq\[parquet\]'"):
        evaluated(tmp_path, "a.parquet", b"PAR1")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("case", "--map 'case': KEY=PATH is needed"),
        ("case=", "--map 'case=': KEY=PATH is needed"),
        ("=qid", "--map '=qid': KEY=PATH is needed"),
        ("case=a,", "--map '': KEY=PATH is needed"),
        ("qid=case", "evalq has no key 'qid'; did you mean case=qid?"),
        ("answer=x", "evalq has no key 'answer' \\(keys: case, repeat, output"),
        ("case=a,case=b", "case is mapped twice, to 'a' and to 'b'"),
    ],
)
def test_a_mapping_that_cannot_be_meant_says_why(given: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        mapped_keys(given, FIELDS)


def test_a_mapping_may_be_given_in_parts() -> None:
    """By several options, with blanks, and with the same key again."""
    assert mapped_keys(("case = qid", "output=a.b,case=qid"), FIELDS) == {"case": "qid", "output": "a.b"}
    assert mapped_keys(None, FIELDS) == mapped_keys((), FIELDS) == {}


# Tables that Excel wrote: read as they were meant, or refused with the place and what to do.

_TABLE = [{"case": "1", "output": "파리"}, {"case": "2", "output": "4"}]
_READ = {
    "byte-order-mark": b"\xef\xbb\xbf" + as_csv(_TABLE),
    "windows-lines": as_csv(_TABLE, newline="\r\n"),
    "blanks-in-the-header": as_csv(_TABLE).replace(b"case,output", b" case , output "),
    "empty-rows": as_csv(_TABLE) + b",\r\n,\r\n\r\n",
    "empty-columns": b"case,output,,\n1,a,,\n2,b,,\n",
    "quoted-header": as_csv(_TABLE).replace(b"case,output", b'"case","output"'),
}
_REFUSED = {
    "cp949": (
        as_csv(_TABLE, encoding="cp949"),
        r"a\.csv:2: not UTF-8: .*Korean in cp949: save the file as 'CSV UTF-8'",
    ),
    "utf-16": (as_csv(_TABLE, encoding="utf-16"), r"a\.csv:1: UTF-16: save the file as UTF-8"),
    "semicolons": (as_csv(_TABLE, ";"), r"a\.csv:1: fields separated by semicolons: .*Save the file with commas"),
    "tabs": (as_csv(_TABLE, "\t"), r"a\.csv:1: fields separated by tabs: .*Save the file with commas"),
    "sep-line": (b"sep=,\n" + as_csv(_TABLE), r"a\.csv:1: 'sep=,', a line that Excel alone reads: delete it"),
    "workbook": (b"PK\x03\x04" + bytes(range(256)), r"a\.csv:1: an Excel workbook .*export it as CSV in UTF-8"),
    "old-workbook": (
        b"\xd0\xcf\x11\xe0" + bytes(range(256)),
        r"a\.csv:1: an Excel workbook .*export it as CSV in UTF-8",
    ),
    "carriage-returns": (as_csv(_TABLE, newline="\r"), r"a\.csv:1: lines that end in a lone carriage return: save the"),
    "dates": (
        b"case,output\n01-Jan,a\n02-Jan,b\n",
        r"a\.csv:2: .*'01-Jan' looks like a date .*format the column as text",
    ),
    "korean-dates": ("case,output\n1월 1일,a\n".encode(), r"a\.csv:2: .*'1월 1일' looks like a date that Excel made"),
    "short-numbers": (b"case,output\n1.23457E+12,a\n", r"a\.csv:2: .*looks like a long number that Excel shortened"),
    "title-above": (
        b"My results,\n\ncase,output\n1,a\n",
        r"a\.csv:3: a record needs case and output; .*Keys: My results",
    ),
    "column-twice": (b"case,output,output\n1,a,b\n", r"a\.csv:1: two columns are called 'output': rename one"),
}


@pytest.mark.parametrize("data", _READ.values(), ids=_READ)
def test_a_table_of_excel_is_read_as_it_was_meant(tmp_path: Path, data: bytes) -> None:
    records = evaluated(tmp_path, "a.csv", data).report["records"]
    assert (records["scored"], records["errors"]) == (2, 0)


@pytest.mark.parametrize(("data", "reason"), _REFUSED.values(), ids=_REFUSED)
def test_a_table_of_excel_that_cannot_be_read_says_where_and_what_to_do(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        evaluated(tmp_path, "a.csv", data)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("x" * 32_767, "32,767 characters, the most that Excel keeps"),
        ("가" * 32_767, "32,767 characters, the most that Excel keeps"),
        ("#NAME?", "an error of Excel"),
        ("#REF!", "an error of Excel"),
    ],
)
def test_an_answer_that_excel_has_spoilt_is_an_error_and_no_failure(tmp_path: Path, cell: str, reason: str) -> None:
    """The agent did not write it; other rows count."""
    found = evaluated(tmp_path, "a.csv", f"case,output\n1,{cell}\n2,4\n".encode())
    assert found.report["results"]["outputs"] == {"total": 2, "passed": 1, "failed": 0, "errors": 1}
    (fault,) = found.report["faults"]
    assert fault["where"] == "a.csv:2"
    assert reason in fault["reason"]


# Forty bad inputs: each gives one message, with the place and what to do.

_CSV = b"case,output\n1,Paris\n"
_BAD: dict[str, tuple[str, bytes | None, str, str]] = {
    "missing file": ("gone.csv", None, "", r"gone\.csv: no such file"),
    "no record": ("a.csv", b"", "", "nothing was evaluated: no records in .*a.csv"),
    "header alone": ("a.csv", b"case,output\n", "", "nothing was evaluated"),
    "blank lines": ("a.jsonl", b"\n\n \n", "", "nothing was evaluated"),
    "empty list": ("a.json", b"[]", "", "nothing was evaluated"),
    "list that is cut": ("a.json", b'[{"case": "1"', "", r"a\.json:1: not JSON: .*JSONL has one object on each line"),
    "list in a .jsonl": ("a.jsonl", b'[{"case":"1","output":"a"}]\n', "", r"a\.jsonl:1: .*[Aa] list, not an object"),
    "object over lines": ("a.jsonl", b'{\n "case": "1"\n}\n', "", r"a\.jsonl:1: .*JSONL has one object on each line"),
    "workbook": (
        "a.xlsx",
        b"PK\x03\x04" + bytes(range(200)),
        "",
        r"a\.xlsx:1: an Excel workbook .*export it as CSV in UTF-8",
    ),
    "table without .csv": ("a.txt", _CSV, "", r"a\.txt:1: .*in \.csv a table"),
    "python repr": ("a.jsonl", b"{'case': '1', 'output': 'a'}\n", "", r"a\.jsonl:1: .*[Nn]ot JSON"),
    "numbers": ("a.jsonl", b"1\n2\n", "", r"a\.jsonl:1: .*[Aa] number, not an object"),
    "texts": ("a.jsonl", b'"a"\n"b"\n', "", r"a\.jsonl:1: "),
    "html": ("a.jsonl", b"<html><body>Sign in</body></html>\n", "", r"a\.jsonl:1: .*[Nn]ot JSON"),
    "utf-16 lines": ("a.jsonl", '{"case":"1"}\n'.encode("utf-16"), "", r"a\.jsonl:1: UTF-16: save the file as UTF-8"),
    "gzip without .gz": ("a.jsonl", gzip.compress(b"{}\n"), "", r"a\.jsonl:1: packed by gzip: name the file \.gz"),
    "gz that is none": ("a.csv.gz", _CSV, "", r"a\.csv\.gz: .*[Nn]ot a gzipped file"),
    "gz that is cut": ("a.csv.gz", gzip.compress(_CSV * 50)[:-12], "", r"a\.csv\.gz: .*ended before"),
    "zst that is none": ("a.jsonl.zst", b"{}\n", "", r"a\.jsonl\.zst: "),
    "parquet that is none": ("a.parquet", _CSV, "", r"a\.parquet: .*[Pp]arquet"),
    "parquet that is cut": ("a.parquet", as_parquet(_TABLE)[:-9], "", r"a\.parquet: .*[Pp]arquet"),
    "empty parquet": ("a.parquet", b"", "", r"a\.parquet: .*[Pp]arquet"),
    "parquet called csv": ("a.csv", as_parquet(_TABLE), "", r"a\.csv:1: a Parquet file"),
    "pdf called csv": ("a.csv", b"%PDF-1.7\n\xe2\xe3", "", r"a\.csv:1: a PDF"),
    "binary": ("a.csv", b"\x00\x01\x02" * 100, "", r"a\.csv:1: "),
    "open quote": ("a.csv", b'case,output\n1,"Paris\n2,4\n', "", r"a\.csv:2: not CSV: unexpected end of data"),
    "text behind a quote": ("a.csv", b'case,output\n1,"Pa"ris\n', "", r"a\.csv:2: not CSV: "),
    "carriage return inside": ("a.csv", b"case,output\n1,a\rb\n", "", r"a\.csv:2: not CSV: a lone carriage return"),
    "latin-1 cell": (
        "a.csv",
        b"case,output\n1,caf\xe9\n",
        "",
        r"a\.csv:2: not UTF-8: byte 0xe9 \(save the file as UTF-8",
    ),
    "no such column": (
        "a.csv",
        _CSV,
        "case=qid",
        r"a\.csv:1: --map case=qid: there is no column 'qid' \(columns: 'case'",
    ),
    "column in capitals": ("a.csv", _CSV, "output=Output", r"a\.csv:1: .*'Output'; did you mean 'output'"),
    "no such parquet column": ("a.parquet", as_parquet(_TABLE), "case=x", r"a\.parquet:1: --map case=x: there is no"),
    "no such key": (
        "a.jsonl",
        b'{"q":1,"a":2}\n',
        "case=x,output=y",
        r"a\.jsonl:1: .*\('x'\) and output \('y'\).*Keys: q",
    ),
    "only the case": ("a.jsonl", b'{"case":"1","answer":"Paris"}\n', "", r"Try --map case=case,output=answer"),
    "only the output": ("a.jsonl", b'{"qid":"1","output":"Paris"}\n', "", r"Try --map case=qid,output=output"),
    "no idea": ("a.jsonl", b'{"x":1,"y":2}\n', "", r"Keys: x \(1\), y \(1\)\. Name them: --map case=KEY,output=KEY"),
    "other cases": (
        "a.jsonl",
        b'{"case":"9","output":"a"}\n',
        "",
        r"a\.jsonl:1: .*the cases are '1', '2', '3'.*have '9'",
    ),
    "cases by another key": (
        *("a.jsonl", b'{"case":"x1","output":"Paris","qid":1}\n', ""),
        r"a\.jsonl:1: .*Try --map case=qid,output=output",
    ),
    "a folder with --map": (".", None, "case=qid", r"--map is for files of many records; .* is a folder"),
    "two answers to one": (
        *("a.csv", b"q,a,gold\n1,x,y\n1,x,z\n", "case=q,output=a,expected=gold"),
        r"a\.csv:3: gold: 'z' here, and 'y' on line 2 for the same case",
    ),
    "a huge list": ("a.json", b"[" * 5_000 + b"]" * 5_000, "", r"a\.json:1: nested deeper than 200 levels"),
    "half a character": ("a.csv", "case,output\n1,파".encode()[:-1], "", r"a\.csv:2: not UTF-8"),
}


@pytest.mark.parametrize(("name", "data", "mapping", "reason"), _BAD.values(), ids=_BAD)
def test_a_bad_input_gives_one_message_with_place_and_remedy(
    tmp_path: Path, name: str, data: bytes | None, mapping: str, reason: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    elif name == ".":
        (tmp_path / "1.txt").write_text("Paris")
    cases = tmp_path / "cases" / "cases.jsonl"
    cases.parent.mkdir()
    cases.write_bytes(as_jsonl([{"id": name, "expected": text} for name, text in EXPECTED.items()]))
    options = {"outputs": [f"{tmp_path}/{name}"], **({"map": mapping} if mapping else {})}
    with pytest.raises((InputError, UsageError, ConfigError, EvalqError), match=reason) as caught:
        evaluate_files("checks", [cases], options=options)
    text = str(caught.value)
    assert len(text.splitlines()) <= 2
    assert "Traceback" not in text


def test_there_are_enough_of_each() -> None:
    """As many as the tables promise."""
    assert (len(LAYOUTS) >= 14, len(_READ) + len(_REFUSED) >= 14, len(_BAD) >= 40) == (True, True, True)
