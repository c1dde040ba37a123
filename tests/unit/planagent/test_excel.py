"""Files that Excel wrote: read as they were meant, or refused with the place and what to do."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import InputError
from evalq.evalcore.evaluators.planagent import evaluator
from evalq.evalcore.fold import evaluate_files
from tests.unit.planagent.helpers import COLUMNS, answer, evaluation, row, to_csv

ROWS = [row(), row("p", category="예외")]
TEXT = to_csv(ROWS)
NAME, BLANKS = "plan_agent_a.csv", "," * (len(COLUMNS) - 1)

READ = {
    "byte-order-mark": TEXT.encode("utf-8-sig"),
    "windows-lines": TEXT.replace("\n", "\r\n").encode(),
    "empty-rows": f"{TEXT}{BLANKS}\n{BLANKS}\n\n".encode(),
    "empty-row-inside": TEXT.replace("\n", f"\n{BLANKS}\n", 1).encode(),
    "empty-rows-above": f"{BLANKS}\n{TEXT}".encode(),
    "other-column-twice": "".join(f"{line},,\n" for line in TEXT.splitlines()).encode(),
}
REFUSED = {
    "cp949": (TEXT.encode("cp949"), 1, "it reads as Korean in cp949: save the file as 'CSV UTF-8'"),
    "cp949-below": (
        TEXT.encode() + to_csv(ROWS).partition("\n")[2].encode("cp949"),
        4,
        "it reads as Korean in cp949: save the file as 'CSV UTF-8'",
    ),
    "utf-16": (TEXT.encode("utf-16"), 1, "UTF-16: save the file as UTF-8"),
    "semicolons": (TEXT.replace(",", ";").encode(), 1, "separated by semicolons: is the delimiter a comma?"),
    "tabs": (TEXT.replace(",", "\t").encode(), 1, "separated by tabs: is the delimiter a comma?"),
    "sep-line": (f"sep=,\n{TEXT}".encode(), 1, "'sep=,', a line that Excel alone reads: delete it"),
    "workbook": (b"PK\x03\x04" + bytes(range(200)), 1, "an Excel workbook (.xlsx) or another zip archive: export it"),
    "carriage-returns": (TEXT.replace("\n", "\r").encode(), 1, "lines that end in a lone carriage return: save"),
    "blanks-in-the-header": (TEXT.replace("Query ID", " Query ID ").encode(), 1, "' Query ID ' is to be 'Query ID'"),
    "capitals-in-the-header": (TEXT.replace("Raw JSON", "RAW JSON").encode(), 1, "'RAW JSON' is to be 'Raw JSON'"),
    "letters-in-parts": (
        TEXT.replace("카테고리", unicodedata.normalize("NFD", "카테고리")).encode(),
        1,
        "is to be '카테고리'",
    ),
    "title-above": (f"결과{BLANKS}\n{TEXT}".encode(), 1, "missing columns: Run ID, Item ID, "),
    "column-deleted": (TEXT.replace("LLM 점수,", "").encode(), 1, "missing column: LLM 점수 (the header has 'Run ID'"),
    "column-twice": (TEXT.replace("Run ID,", "Query ID,").encode(), 1, "missing column: Run ID"),
    "row-cut": (TEXT.encode() + b"a,b,c\n", 4, "3 fields where the header has 12: is the delimiter or the quoting"),
}


@pytest.mark.parametrize("data", READ.values(), ids=READ)
def test_a_file_of_excel_is_read_as_it_was_meant(tmp_path: Path, data: bytes) -> None:
    """With the same results as the file that nobody has opened in Excel."""
    (tmp_path / NAME).write_bytes(data)
    found = evaluate_files(evaluator, [tmp_path / NAME]).report["results"]
    assert found == evaluation(tmp_path, ROWS).report["results"]


@pytest.mark.parametrize(("data", "line", "remedy"), REFUSED.values(), ids=REFUSED)
def test_a_file_of_excel_that_cannot_be_read_says_where_and_what_to_do(
    tmp_path: Path, data: bytes, line: int, remedy: str
) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(InputError) as caught:
        evaluate_files(evaluator, [tmp_path / NAME])
    (where, reason) = caught.value.faults[0]
    assert where == f"{NAME}:{line}"
    assert remedy in reason


def test_what_excel_changed_in_cells_is_named(tmp_path: Path) -> None:
    """A long cell that it cut, in the report; a round that it took for a date, in a note."""
    cut = answer("가" * 32_767)[:32_767]
    found = evaluation(tmp_path, [row(round_="01-Jan", raw=cut), row("p", round_="02-Jan")]).report
    assert "32,767 characters, the most that a spreadsheet keeps of a cell" in str(found["left_out"])
    (notice,) = plugins.get("planagent").views.notices(found)
    assert "방/반복: '01-Jan' looks like a date that Excel made of a text such as 1/1: format the column as" in notice
