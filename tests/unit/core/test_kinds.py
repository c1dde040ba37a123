"""What is no CSV in UTF-8 is called what it seems to be, and what to do; what is CSV is called nothing."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from evalq.evalcore.errors import InputError
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.records.cut import Cutter
from evalq.evalcore.records.inputs import HEAD_BYTES, file_kind

TABLE = 'id,"the, text"\n1,"a ""quoted"" word"\n2,가나다\n' * 40


def _workbook() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>" * 900)
    return out.getvalue()


KINDS = {
    "UTF-16": (TABLE.encode("utf-16"), "UTF-16: save the file as UTF-8"),
    "UTF-16, big end first": (b"\xfe\xff" + TABLE.encode("utf-16-be"), "UTF-16: save the file as UTF-8"),
    "UTF-16 without a mark": ("id,n\n1,2\n".encode("utf-16-le"), "UTF-16 without a mark: save the file as UTF-8"),
    "UTF-32": (TABLE.encode("utf-32"), "UTF-32: save the file as UTF-8"),
    "semicolons": (TABLE.replace(",", ";").encode(), "fields separated by semicolons"),
    "tabs": (TABLE.replace(",", "\t").encode(), "fields separated by tabs"),
    "a workbook": (_workbook(), "an Excel workbook (.xlsx)"),
    "random bytes": (random.Random(5).randbytes(9000), "binary data"),
    "another encoding": (
        ("id,nom\n" + "1,été là\n" * 50).encode("latin-1"),
        "another encoding: save the file as UTF-8",
    ),
    "Korean": (
        ("id,이름\n" + "1,한국어 문장\n" * 500).encode("cp949"),
        "Korean in cp949: save the file as 'CSV UTF-8'",
    ),
    "Korean, cut in two": (("i,이름\n" + "1,한국어 문장\n" * 500).encode("cp949"), "Korean in cp949"),
    "lone carriage returns": (TABLE.replace("\n", "\r").encode(), "lines that end in a lone carriage return"),
    "gzip": (b"\x1f\x8b\x08" + bytes(300), "packed by gzip: name the file .gz"),
}


@pytest.mark.parametrize("case", KINDS)
def test_another_kind_of_file_is_named(case: str) -> None:
    """Not "broken quoting", and nothing about Python: the kind, and what to do about it."""
    data, said = KINDS[case]
    with pytest.raises(InputError) as caught:
        Cutter(io.BytesIO(data), "csv", "t.csv", ("id", "text"))
    ((place, reason),) = caught.value.faults
    assert (place, said in reason) == ("t.csv:1", True), reason


@pytest.mark.parametrize("text", [TABLE, "id\n1\n", 'id,"a;b;c"\n', "id,x\r\n1,2\r\n", "이름,값\n", ""])
def test_what_may_be_csv_is_called_nothing(text: str) -> None:
    """Its faults are reported as they are."""
    assert file_kind(text.encode()[:HEAD_BYTES]) is None


LINES = "".join(json.dumps({"id": f"r{number}", "text": "가나다"}, ensure_ascii=False) + "\n" for number in range(40))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_lines_in_another_encoding_are_one_fault(encoding: str, tmp_path: Path) -> None:
    """Not one for every line: the encoding is named before anything is evaluated."""
    path = tmp_path / "lines.jsonl"
    path.write_bytes(LINES.encode(encoding))
    with pytest.raises(InputError) as caught:
        evaluate_files("cooperation", [str(path)])
    ((place, reason),) = caught.value.faults
    assert (place, "UTF-" in reason, "save the file as UTF-8" in reason) == ("lines.jsonl:1", True, True), reason


@pytest.mark.parametrize(
    "data", [b"", b"\n\n", LINES.encode(), b'{"id": 1}', b'{"id": "\0"}\n' + LINES.encode("cp949")]
)
def test_lines_that_may_be_utf_8_are_read_one_by_one(data: bytes) -> None:
    """Also where some of them are broken: each of those is a fault of its own."""
    assert Cutter(io.BytesIO(data), "jsonl", "t.jsonl", ()).columns == ()
