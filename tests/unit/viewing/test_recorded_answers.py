"""Recorded outputs of any layout on pages: the question and the answer of each case, as for live calls."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page.answers import answer_of, input_path, question_in
from tests.unit.viewing.conftest import viewing

CASES = [
    {"id": "a", "input": "Name the capital\nof <b>Korea</b>.", "checks": [{"contains": "Seoul"}]},
    {"id": "b", "input": "Name the capital of France.", "checks": [{"contains": "Paris"}]},
]
ROWS = [
    {"qid": "a", "answer": 'In two\nlines, "Seoul"', "asked": "Korea, please"},
    {"qid": "b", "answer": "Lyon <script>", "asked": "France, please"},
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with cases, and one with cases that ask nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.json").write_text(json.dumps({"cases": CASES}))
    bare = [{key: value for key, value in case.items() if key != "input"} for case in CASES]
    (tmp_path / "bare.json").write_text(json.dumps({"cases": bare}))
    return tmp_path


def _table(delimiter: str) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return out.getvalue().encode()


def _parquet() -> bytes:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out)
    return out.getvalue()


def _lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


LAYOUTS: dict[str, Callable[[], bytes]] = {
    "o.csv": lambda: _table(","),
    "o.tsv": lambda: _table("\t"),
    "o.parquet": _parquet,
    "o.json": lambda: json.dumps(ROWS).encode(),
    "o.jsonl": _lines,
    "o.jsonl.gz": lambda: gzip.compress(_lines()),
    "records.jsonl": _lines,  # as the run's own records are called
    "o.csv.gz": lambda: gzip.compress(_table(",")),
}
MAP = "case=qid,output=answer"


def evaluated(outputs: str, *more: str, cases: Sequence[str] = ("cases.json",), out: str = "run") -> RunFolder:
    words = ["--outputs", outputs, "--inline", "--quiet", "--format", "none", "--out", out]
    assert main(["checks", *cases, *words, *more]) == 0
    return RunFolder(Path(out))


@pytest.mark.parametrize("name", LAYOUTS)
def test_pages_show_question_and_answer_of_each_layout(here: Path, name: str) -> None:
    """In report.html and on the page of a case, also once the file has changed and the folder has moved."""
    (here / name).write_bytes(LAYOUTS[name]())
    folder = evaluated(name, "--map", MAP)
    page = (folder.path / "report.html").read_text()
    first = page.partition('<details class="failed"')[2].partition("</details>")[0]
    assert "Name the capital of France." in first
    assert "Lyon &lt;script&gt;" in first
    (here / name).write_bytes(b"changed")
    folder.path.rename(here / "moved")
    with viewing(str(here / "moved")) as browser:
        key = RunFolder(here / "moved").info().run
        found = browser.enter().get(f"/run/{key}/case?id=a")
        assert (found.status, "Name the capital of <b>Korea</b>." in found.text) == (200, True)
        assert 'In two lines, "Seoul"' in found.text


def test_a_folder_of_files_shows_each_file(here: Path) -> None:
    """The record is called after its file, not after a line."""
    (here / "out").mkdir()
    (here / "out" / "a.txt").write_text("Seoul")
    (here / "out" / "b.txt").write_text("Lyon")
    folder = evaluated("out")
    place = input_path(folder, "out/b.txt")
    assert place is not None
    assert answer_of(place[0].read_bytes().splitlines()[place[1]]).text == "Lyon"
    assert input_path(folder, "out/c.txt") is None
    assert "Lyon" in (folder.path / "report.html").read_text()


def test_a_mapped_question_is_shown_where_the_case_has_none(here: Path) -> None:
    """A column called otherwise, or `input`; the cases file says it first if it says it."""
    (here / "o.csv").write_bytes(_table(","))
    bare = evaluated("o.csv", "--map", f"{MAP},input=asked", cases=["bare.json"])
    found = question_in(bare, "b")
    assert found is not None
    assert found.messages == (("", "France, please"),)
    whole = question_in(evaluated("o.csv", "--map", f"{MAP},input=asked", out="whole"), "b")
    assert whole is not None
    assert whole.messages == (("", "Name the capital of France."),)


@pytest.mark.parametrize("key", ["input", "prompt", "question"])
def test_a_record_says_itself_what_was_asked(here: Path, key: str) -> None:
    """Outputs as other tools write them; also a chat. A digest, which live calls keep, is no question."""
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "And?"}]
    lines = [{"case": "a", "output": "Seoul", key: "Where is it?"}, {"case": "b", "output": "Lyon", key: chat}]
    (here / "o.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = evaluated("o.jsonl", cases=["bare.json"])
    assert "Be brief." in (folder.path / "report.html").read_text()
    with viewing(".") as browser:
        assert "Where is it?" in browser.enter().get(f"/run/{folder.info().run}/case?id=a").text
    assert answer_of(json.dumps({"output": "x", key: "0" * 64}).encode()).question is None


def test_without_prompts_neither_questions_nor_copies_are_kept(here: Path) -> None:
    """The report's numbers are the same."""
    (here / "o.csv").write_bytes(_table(","))
    kept, left = evaluated("o.csv", "--map", MAP, out="k"), evaluated("o.csv", "--map", MAP, "--no-prompts", out="l")
    assert {path.name for path in kept.path.iterdir()} - {path.name for path in left.path.iterdir()} == {
        "lines",
        "prompts.jsonl",
    }
    assert kept.report()["results"] == left.report()["results"]


def test_a_comparison_shows_questions_and_answers_of_tables(here: Path) -> None:
    """In the page that compare writes, and on the case's page of the two runs."""
    (here / "o.csv").write_bytes(_table(","))
    (here / "p.csv").write_bytes(_table(",").replace(b"Lyon", b"Paris not Lyon"))
    one, other = evaluated("o.csv", "--map", MAP, out="one"), evaluated("p.csv", "--map", MAP, out="other")
    assert main(["compare", "one", "other", "-o", "compare.html"]) == 0
    page = (here / "compare.html").read_text()
    assert "Name the capital of France." in page
    assert "<ins>Paris not </ins>" in page
    with viewing(".") as browser:
        pair = f"base={one.info().run}&cand={other.info().run}"
        found = browser.enter().get(f"/compare/case?{pair}&id=b")
        assert "Name the capital of France." in found.text
        assert "<ins>Paris not </ins>" in found.body


def test_a_folder_of_somebody_else_leads_nowhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a link in place of the kept lines nor one in place of their folder is followed."""
    (here / "o.csv").write_bytes(_table(","))
    folder = RunFolder(evaluated("o.csv", "--map", MAP).path.absolute())
    (here / "cwd").mkdir()
    monkeypatch.chdir("cwd")
    (here / "secret").write_text('{"case":"a","output":"secret"}\n' * 3)
    lines = folder.path / "lines"
    (lines / "o.csv").unlink()
    (lines / "o.csv").symlink_to(here / "secret")
    assert input_path(folder, "o.csv:2") is None
    (lines / "o.csv").unlink()
    lines.rmdir()
    (here / "elsewhere").mkdir()
    (here / "secret").rename(here / "elsewhere" / "o.csv")
    lines.symlink_to(here / "elsewhere")
    assert input_path(folder, "o.csv:2") is None


@pytest.mark.parametrize("output", ["", "yes", "<b>{}</b>", '{"tool_calls": []}', "[1]", None, 3, {"a": 1}])
@pytest.mark.parametrize("asked", [None, "a question", [{"role": "user", "content": "a question"}], "0" * 64])
def test_an_answer_of_a_text_alone_is_read_as_any_other(
    output: object, asked: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter way for most answers shows what the longer one does."""
    line = json.dumps({"case": "a", "repeat": 1, "output": output, "question": asked}).encode()
    shown = answer_of(line)
    monkeypatch.setattr("evalq.producer.page.answers._TEXT_ALONE", frozenset())
    assert answer_of(line) == shown
