"""Lines, fences and tables are read as people and tools write them, and what cannot be read says why."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError, InputError
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.labels import load_labels
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.records.json_values import NoJson, extract
from tests.unit.checks.helpers import evaluated, line, params_of

CASES = [{"id": "c1", "checks": [{"equals": "yes"}]}]


@pytest.mark.parametrize("nothing", [None, "", "  ", False, {}, []])
def test_an_error_of_nothing_beside_an_answer_is_none(tmp_path: Path, nothing: Any) -> None:
    """Recorders write null, false or nothing where there was none; without an output the line still lacks one."""
    params = params_of(CASES)
    found = evaluated(tmp_path, [line("c1", 0, "yes", error=nothing)], params).report
    assert found["records"]["errors"] == 0
    assert found["results"]["pass_rate"] == 1.0
    for broken in ("rate limit", {"code": 1}, ["x"], True, 5):
        found = evaluated(tmp_path, [line("c1", 0, "yes", error=broken)], params).report
        assert found["records"]["errors"] == 1


FENCED = [
    '````json\n{"a": "```"}\n````',
    '~~~json\n{"a": "```"}\n~~~',
    'Here:\n```json title="answer.json"\n{"a": "```"}\n```\nDone.',
    '``` {.json}\n{"a": "```"}\n`````',
    '```json:answer.json\n{"a": "```"}\n```',
    '   ~~~~ JSON\n{"a": "```"}\n~~~~~~',
    'Use ```x``` so:\n```json\n{"a": "```"}\n```',
]


@pytest.mark.parametrize("text", FENCED)
def test_fences_are_those_of_commonmark(text: str) -> None:
    """Four ticks, tildes, a title behind the word."""
    assert extract(text) == {"a": "```"}


@pytest.mark.parametrize("text", ['```json {"a": 1}```', '```json\n{"a": 1}\n~~~', '````json\n{"a": 1}\n```'])
def test_what_no_fence_closes_is_no_block(text: str) -> None:
    """A shorter fence, or one of the other sign, closes none."""
    with pytest.raises(NoJson):
        extract(text)


TABLES = {
    "cp949": ("id,기대\na,가\n".encode("cp949"), "save the file as 'CSV UTF-8'"),
    "utf-16": ("id,expected\na,x\n".encode("utf-16"), "UTF-16: save the file as UTF-8"),
    "utf-16 without a mark": ("id,expected\na,x\n".encode("utf-16-le"), "UTF-16 without a mark"),
    "utf-32": ("id,expected\na,x\n".encode("utf-32"), "UTF-32: save the file as UTF-8"),
    "sep": (b"sep=,\nid,expected\na,x\n", "'sep=,', a line that Excel alone reads: delete it"),
    "sep, quoted": (codecs.BOM_UTF8 + b'"sep=;"\r\nid;expected\r\na;x\r\n', "a line that Excel alone reads: delete it"),
    "semicolons": (b"id;expected\na;x\n", "fields separated by semicolons"),
    "a workbook": (b"PK\x03\x04" + bytes(200), "an Excel workbook"),
    "carriage returns": (b"id,expected\ra,x\r", "lone carriage return"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_is_none_says_what_the_reader_of_inputs_says(tmp_path: Path, name: str) -> None:
    """Cases and labels as an input of rows: one reader, and one message."""
    data, reason = TABLES[name]
    file = tmp_path / "rows.csv"
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"rows\.csv:1: ") as cases:
        load_cases([file])
    with pytest.raises(ConfigError, match=r"rows\.csv:1: ") as labels:
        load_labels(str(file))
    with pytest.raises(InputError) as rows:
        evaluate_files("planagent", [file], {})
    for raised in (cases, labels, rows):
        assert reason in str(raised.value)


def test_rows_in_another_encoding_are_named_by_line(tmp_path: Path) -> None:
    """A header of ASCII says nothing of the rows behind it."""
    file = tmp_path / "rows.csv"
    file.write_bytes(b"id,expected\na,x\n" + "b,가\n".encode("cp949"))
    with pytest.raises(
        ConfigError, match=r"rows\.csv:3: not UTF-8: byte 0x\w\w \(it reads as Korean in cp949: save the"
    ):
        load_cases([file])
    lines = tmp_path / "rows.jsonl"
    lines.write_bytes('{"id": "a"}\n'.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"rows\.jsonl:1: UTF-16: save the file as UTF-8"):
        load_cases([lines])
