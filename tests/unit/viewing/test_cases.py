"""A case on a page: the question, each answer and what it took; and the answers of two runs side by side."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import time
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.producer.cli import cli
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page.answers import answer_of, lines_with, question_in
from evalq.producer.page.side_by_side import difference
from evalq.producer.page.words import language_of
from tests.unit.viewing.conftest import Browser, viewing

HOSTILE = "<script>alert(1)</script> \u202eevil\u202c \u2066x & \x1b[31m<b>bold</b> ]]> --> '\" &lt;"
LONG = "many words " * 100_000
AGENT = f"""
import json, pathlib
def ask(call):
    text = str(call)
    if "capital" in text:
        return pathlib.Path("capital.txt").read_text()
    if "script" in text:
        return {HOSTILE!r}
    if "long" in text:
        return {LONG!r} + pathlib.Path("capital.txt").read_text()
    return json.dumps({{"answer": 42, "tool_calls": [{{"name": "add", "arguments": {{"a": 17, "b": 25}}}}]}})
"""
CASES = [
    {"id": "capital", "input": "What is the capital of France?", "checks": [{"contains": "Paris"}]},
    {"id": "case/../<script>?&#%", "input": f"Say {HOSTILE} please: script", "checks": [{"contains": "none"}]},
    {"id": "사례 2", "input": "a long one", "checks": [{"contains": "many"}]},
    {"id": "sum", "input": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "17 + 25?"}],
     "checks": [{"contains": "42"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Two runs of a Python target, which answers one question otherwise in the second, and their folder."""
    top = tmp_path_factory.mktemp("swept")
    (top / "agent.py").write_text(AGENT)
    (top / "cases.json").write_text(json.dumps({"cases": CASES}))
    keys = []
    with contextlib.chdir(top):
        for name, capital in (("first", "Paris is"), ("second", "Lyon is")):
            (top / "capital.txt").write_text(f"{capital} the capital of France.")
            keys.append(sweep(name))
    return top, keys[0], keys[1]


@pytest.fixture
def swept(made_once: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, str]:
    """A copy of these runs in the current folder; their ids."""
    top, *keys = made_once
    shutil.copytree(top, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return keys[0], keys[1]


def sweep(name: str, *more: str) -> str:
    """A run of that name in its folder; its id."""
    command = ["checks", "cases.json", "--target", "python:agent:ask", "--repeat", "2", "--quiet"]
    result = CliRunner().invoke(cli, [*command, "--out", f"evalq-runs/{name}", *more])
    assert result.exit_code == 0, result.output
    return RunFolder(Path("evalq-runs") / name).info().run


def reached(browser: Browser, start: str, case: str, clicks: int) -> str | None:
    """The address with the question of a case that so many links lead to."""
    pages = [start]
    for _ in range(clicks):
        links = [unescape(link) for page in pages for link in browser.get(page).links]
        pages = [link for link in dict.fromkeys(links) if re.match(r"/(run/[^/]+/(case|record)|compare/case)\?", link)]
        found = next((page for page in pages if f"id={case}" in page), None)
        if found is not None:
            return found
    return None


def test_a_case_is_reached_by_two_clicks_and_shows_all_that_is_known_of_it(swept: tuple[str, str]) -> None:
    """From the run, its records and the comparison: question, answers with their difference, checks, seconds."""
    first, second = swept
    with viewing() as browser:
        browser.enter()
        for start in (f"/run/{first}", f"/run/{first}/record?at=1", f"/compare?base={first}&cand={second}"):
            page = reached(browser, start, "capital", 2)
            assert page is not None, start
            found = browser.get(page)
            assert "What is the capital of France?" in found.text
            assert "is the capital of France." in found.text
            assert "contains" in found.text
            assert "Seconds" in found.text
        beside = browser.get(f"/compare/case?base={first}&cand={second}&id=capital")
        assert "<del>Paris</del> is the capital" in beside.body
        assert "<ins>Lyon</ins> is the capital" in beside.body
        assert beside.text.count("passed") > 2
        record = browser.get(f"/run/{first}/record?at=8")
        assert "Tool callsadd" in record.text
        assert "Be brief." in record.text
        assert browser.get(f"/run/{first}/case?id=nobody").status == 404
        assert browser.get(f"/compare/case?base={first}&cand={second}&id=").status == 404
        assert browser.get(f"/compare/case?base={first}&cand=nobody&id=sum").status == 404


def test_lists_of_runs_have_target_result_with_interval_cost_and_duration(swept: tuple[str, str]) -> None:
    """In a terminal and in the browser; a run's name says what it is about."""
    assert all(re.fullmatch(r"checks-agent-ask-\d{4}-\d{4}-[a-z0-9]{6}", run) for run in swept)
    rows = CliRunner().invoke(cli, ["list"]).stdout.splitlines()
    # Both runs may have begun within one second, and then either comes first.
    shown = r"agent-ask, 4 of 8 outputs passed \(50\.0 %, 95 % [\d.]+ to [\d.]+ %\), \d+ s$"
    assert any(re.search(shown, row) for row in rows), rows
    with viewing() as browser:
        found = browser.enter().get("/")
        assert re.search(r"4 of 8 outputs passed50\.0 %, 95 % [\d.]+ to [\d.]+ %", found.text)
        assert "agent-ask" in found.text
        assert re.search(r"–\d+ s", found.text)


def test_the_filter_shows_what_changed(swept: tuple[str, str]) -> None:
    """Changed, worse, better and all cases, in either direction, and a search among them."""
    first, second = swept

    def cases(page: str) -> set[str]:
        return {
            row[1] for row in re.findall(r'<tr><th( [^>]*)?><a href="[^"]*/compare/case[^"]*" dir="auto">([^<]*)</a>',
                                         page.partition('id="h-cases"')[2].partition("</section>")[0])
        }  # fmt: skip

    with viewing() as browser:
        browser.enter()
        address = f"/compare?base={first}&cand={second}"
        assert cases(browser.get(address).body) == {"capital"}
        assert cases(browser.get(f"{address}&show=worse").body) == {"capital"}
        assert cases(browser.get(f"{address}&show=better").body) == set()
        assert cases(browser.get(f"/compare?base={second}&cand={first}&show=better").body) == {"capital"}
        assert len(cases(browser.get(f"{address}&show=all").body)) == len(CASES)
        assert cases(browser.get(f"{address}&show=all&q=SUM").body) == {"sum"}
        assert cases(browser.get(f"{address}&show=nonsense&at=999").body) == {"capital"}


def test_hostile_and_long_texts_are_text(swept: tuple[str, str]) -> None:
    """No element comes of them, nothing invisible stays, and a megabyte is cut with a word of how much is left."""
    first, second = swept
    with viewing() as browser:
        browser.enter()
        began = time.process_time()
        for case in CASES:
            name = "".join(f"%{byte:02x}" for byte in str(case["id"]).encode())
            for page in (f"/run/{first}/case?id={name}", f"/compare/case?base={first}&cand={second}&id={name}"):
                found = browser.get(page)
                assert found.status == 200, page
                assert str(case["id"]) in found.text
                assert not {"b"} & {tag for tag, _ in found.page.tags}
                assert len([tag for tag, _ in found.page.tags if tag == "script"]) == 1
                assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", found.body)
                assert len(found.body) < 1_000_000
        assert time.process_time() - began < 5
        assert "more characters are in the run folder" in browser.get(f"/run/{first}/record?at=6").text


def test_prompts_are_kept_once_or_not_at_all(swept: tuple[str, str]) -> None:
    """A line a case; none with --no-prompts, and its page says so."""
    lines = (Path("evalq-runs") / "first" / "prompts.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["case"] for line in lines] == [case["id"] for case in CASES]
    assert question_in(RunFolder(Path("evalq-runs") / "first"), "사례 2") is not None
    third = sweep("third", "--no-prompts")
    assert not (Path("evalq-runs") / "third" / "prompts.jsonl").exists()
    with viewing() as browser:
        assert "The question is not in the run folder" in browser.enter().get(f"/run/{third}/case?id=capital").text


def test_a_folder_that_lost_files_still_has_its_pages(swept: tuple[str, str]) -> None:
    """Without outputs the record itself has the answer; damaged prompts and outputs are no error."""
    first, second = swept
    (Path("evalq-runs") / "first" / "outputs.jsonl").unlink()
    (Path("evalq-runs") / "second" / "outputs.jsonl").write_bytes(b"{broken\n" * 8)
    (Path("evalq-runs") / "second" / "prompts.jsonl").write_bytes(b'{"case":"capital",\n{"case":"sum"}\n\xff\n')
    with viewing() as browser:
        browser.enter()
        assert "Paris is the capital of France." in browser.get(f"/run/{first}/case?id=capital").text
        found = browser.get(f"/compare/case?base={first}&cand={second}&id=capital")
        assert found.status == 200
        assert "What is the capital of France?" in found.text


@pytest.mark.parametrize(
    ("base", "cand"),
    [
        ("", ""), ("a", ""), ("", "a b"), ("one two three", "one 2 three"), ("a b a b a b", "b a b a b a"),
        ("x " * 3_000, "y " * 3_000), ("한국어 문장 하나", "한국어 글 하나"), ("a" * 50_000, "b" * 50_000),
        ("a b " * 9_000, "b a " * 9_000),
    ],
)  # fmt: skip
def test_a_difference_is_both_texts_in_pieces_and_equal_where_it_says_so(base: str, cand: str) -> None:
    """Whatever the texts are, and within bounds of work."""
    began = time.process_time()
    left, right = difference(base, cand)
    assert time.process_time() - began < 2
    assert "".join(piece.text for piece in left) == base
    assert "".join(piece.text for piece in right) == cand
    kept = ["".join(piece.text for piece in side if not piece.changed) for side in (left, right)]
    assert kept[0] == kept[1]


def test_differences_of_short_texts_are_the_shortest() -> None:
    """As many equal words as the longest common subsequence has."""
    for base, cand in itertools.product(itertools.product("ab", repeat=4), itertools.product("abc", repeat=3)):
        left, _ = difference(" ".join(base), " ".join(cand))
        kept = "".join(piece.text for piece in left if not piece.changed).split()
        best = max(
            (
                n
                for n in range(4)
                for part in itertools.combinations(base, n)
                if part in itertools.combinations(cand, n)
            ),
            default=0,
        )
        assert len(kept) <= best
        assert len("".join(piece.text for piece in left if not piece.changed)) >= best


@pytest.mark.parametrize(
    ("line", "text", "error"),
    [
        (b'{"output": "x"}', "x", ""), (b'{"output": {"a": 1}}', '{\n  "a": 1\n}', ""), (b"[1]", "[\n  1\n]", ""),
        (b'{"error": "timeout: 3 s", "attempts": [{"kind": "timeout", "latency_seconds": 3}, 7, null]}', "",
         "timeout: 3 s"),
        (b'{"output": null, "text": "prose"}', "prose", ""), (b"no json", "no json", ""), (b"\xff", "\ufffd", ""),
        (b"[" * 5_000, "[" * 5_000, ""), (b'{"output": 1, "attempts": {"a": true}, "tool_calls": 3}', "1", ""),
    ],
)  # fmt: skip
def test_any_line_is_an_answer(line: bytes, text: str, error: str) -> None:
    """Of evalq's form, of others', and of none."""
    found = answer_of(line)
    assert (found.text, found.error) == (text, error)


@pytest.mark.parametrize(
    ("text", "language"),
    [("서울은 수도입니다.", "ko"), ("東京は日本の首都です。", "ja"), ("Seoul (서울) is a capital.", None), ("", None),
     ("42", None), ("수도: Seoul", "ko")],
)  # fmt: skip
def test_a_passage_has_its_language(text: str, language: str | None) -> None:
    """For readers aloud; a word in brackets does not count."""
    assert language_of(text) == language


def test_lines_are_found_by_a_piece_in_any_place(tmp_path: Path) -> None:
    """First, last, without a newline, and across blocks of reading."""
    path = tmp_path / "lines"
    lines = [b"x" * (n % 700) + (b'"wanted"' if n % 997 == 0 else b"") for n in range(5_000)]
    for end in (b"", b"\n"):
        path.write_bytes(b"\n".join(lines) + end)
        with path.open("rb") as stream:
            assert list(lines_with(stream, b'"wanted"')) == [(n, lines[n]) for n in range(0, 5_000, 997)]


def test_a_comparison_names_its_runs_and_gives_changes_in_one_unit(swept: tuple[str, str]) -> None:
    """By the names of their folders, with target and time; the chart has the numbers of the tables below it."""
    first, second = swept
    with viewing() as browser:
        found = browser.enter().get(f"/compare?base={first}&cand={second}")
        for name, run in (("first", first), ("second", second)):
            began = RunFolder(Path("evalq-runs") / name).info().started[:16].replace("T", " ")
            label = f"{name} · agent-ask · {began}"
            assert re.search(rf'<option value="{run}"( selected)? dir="auto">{re.escape(label)}</option>', found.body)
            assert label in found.text.partition("Pass rate")[0]
        assert first not in found.text
        chart = found.body.partition("What changed")[2].partition("</section>")[0]
        ends = re.search(r">([+-][\d.]+ points) to ([+-][\d.]+ points)<", chart)
        values = re.findall(r'<td class="n">([^<]*)</td>', chart)
        assert ends is not None
        facts = found.body.partition("Measure by measure")[2]
        assert f"<dd>{values[0]}</dd>" in facts
        assert f"<dd>{ends[1]} and {ends[2]}</dd>" in facts
        assert " %" not in re.sub(r"95 % interval", "", chart)
        assert "A scale has 100 points. Changes within 5 points count as none." in found.text
        assert ">first</a>" in browser.get("/").body
