"""Korean pages: the language of the report, no fixed English text, and what others wrote as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.producer.cli import cli
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.page.korean import KOREAN
from evalq.producer.page.render import element, table_script
from evalq.producer.page.words import page_language, word, written_in
from tests.unit.viewing.conftest import viewing

_HANGUL = re.compile("[가-힣]")
_WORDS = re.compile("[A-Za-z]{2,}")
_TAKEN = {name for text in KOREAN.values() for name in _WORDS.findall(text)}
"""Words that a Korean sentence keeps, such as the names of files."""
_EVALUATORS = ("checks", "vs", "verification", "selfcheck", "planagent", "cooperation")
_NAMES = {"evalq", "pass", *_EVALUATORS}
_VOID = {"br", "hr", "img", "input", "link", "meta", "rect", "line", "circle"}
_DATA = {"code", "pre", "script", "style", "title", "del", "ins"}


class _Fixed(HTMLParser):
    """Collects the texts of elements that do not say that they are data."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[tuple[str, bool]] = []
        self.texts: list[str] = []
        self.lang = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.lang = self.lang or (given.get("lang") or "" if tag == "html" else "")
        data = tag in _DATA or given.get("dir") == "auto"
        self.texts += [] if data else [given[key] or "" for key in ("aria-label", "data-label") if key in given]
        if tag not in _VOID:
            self.stack.append((tag, data))

    def handle_endtag(self, tag: str) -> None:
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not (self.stack and self.stack[-1][1]):
            self.texts.append(" ".join(data.split()))


def english_in(page: str, *names: str) -> list[str]:
    """The fixed texts of a page that are not in Korean; ``names`` are those of runs."""
    read = _Fixed()
    read.feed(page)
    assert read.lang == "ko"
    found = []
    for text in read.texts:
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, "")
        words = set(_WORDS.findall(text)) - _NAMES
        if words - (_TAKEN if _HANGUL.search(text) else {"ID", "JSON"}):
            found.append(text)
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(*words: str, out: str) -> RunFolder:
    more = ["--inline", "--quiet", "--format", "none", "--out", f"evalq-runs/{out}"]
    done = CliRunner().invoke(cli, [*words, *more])
    assert done.exit_code in (0, 5), done.output
    return RunFolder(Path("evalq-runs") / out)


def checked(out: str, failing: int, *more: str, lost: bool = False) -> RunFolder:
    """A run of 20 cases x 2, of which some fail; the last one is lost."""
    ids = ["Records", "passed", "Summary", *(f"c{n}" for n in range(3, 20))]
    Path("cases.json").write_text(
        json.dumps({"cases": [{"id": each, "input": "Records", "checks": [{"contains": "yes"}]} for each in ids]})
    )
    took = {"attempts": [{"latency_seconds": 0.5, "prompt_tokens": 3, "completion_tokens": 4, "cost": 0.1}]}
    answers = [{"output": "no" if n < failing else "yes"} for n in range(20)]
    answers[19] = {"error": "boom"} if lost else answers[19]
    outputs = [{"case": each, "repeat": n, **answers[at], **took} for at, each in enumerate(ids) for n in (0, 1)]
    Path(f"{out}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in outputs))
    return evaluated("checks", "cases.json", "--outputs", f"{out}.jsonl", *more, out=out)


@pytest.mark.parametrize("name", [name for name in _EVALUATORS if name != "cooperation"])
def test_no_fixed_english_is_left_on_a_korean_report(here: Path, name: str) -> None:
    """Of each evaluator that comes with evalq, with its charts, its tiles and its table's words."""
    evaluator = plugins.get(name)
    assert evaluator.sample is not None
    (here / "in").mkdir()
    request = evaluator.sample.write(here / "in", 150, 1)
    (here / "params.json").write_text(json.dumps(request.params))
    words = [name, *request.inputs, "--params", "params.json", "--lang", "ko"]
    for key, value in request.options.items():
        for each in value if isinstance(value, list | tuple) else [value] if value else []:
            words += [f"--{key.replace('_', '-')}", str(each)]
    page = (evaluated(*words, out=name).path / "report.html").read_text()
    assert english_in(page) == []
    known = json.loads(re.findall(r'id="known">(.*?)</script>', page)[0])
    assert all(_HANGUL.search(value) or value == "ID" for value in known["words"].values()), known["words"]


def test_no_fixed_english_is_left_on_korean_pages_of_a_viewer(here: Path) -> None:
    """The index, a run, its records, a case, a record, the comparison and its cases, a suite, and errors."""
    one, two = checked("one", 3, "--lang", "ko"), checked("two", 9, "--lang", "ko", lost=True)
    base, cand = one.info().run, two.info().run
    pair = f"base={base}&cand={cand}"
    with viewing() as browser:
        browser.enter()
        suite = next(link for link in browser.get("/suites").links if link.startswith("/suite?"))
        for path in (
            *("/", "/suites", suite, "/compare", f"/compare?{pair}", f"/compare?{pair}&show=all&q=zz"),
            *(f"/compare/case?{pair}&id=c4", f"/compare/case?{pair}&id=c19", f"/compare/case?{pair}&id=none"),
            *(f"/run/{cand}", f"/run/{cand}/records", f"/run/{cand}/records?show=failed", f"/run/{cand}/table"),
            *(f"/run/{cand}/case?id=c19", f"/run/{cand}/record?at=1", f"/run/{cand}/record?at=39"),
            *("/run/none", "/none"),
        ):  # fmt: skip
            assert english_in(browser.get(path).body, "one", "two") == [], path


_POLICY = """gates:
  - {metric: checks.pass_rate, max_drop: 0.05}
  - {metric: checks.pass_rate, min: 0.8, max: 1}
  - {metric: checks.pass_rate, max_relative_drop: 0.1, tier: advisory}
  - {metric: checks.pass_rate, per_case: {min_passes: 1, of: 2}, tier: supporting}
collapse: none
quarantine: [{case: c7, reason: Records}, {case: c8, reason: known, until: 2020-01-01}]
"""


def test_no_fixed_english_is_left_on_korean_pages_of_decisions(here: Path) -> None:
    """They have the language of the candidate's report; names and what judges and checks wrote stay as they are."""
    folders = [checked("base", 0, "--lang", "ko"), checked("falls", 9, "--lang", "ko")]
    folders += [checked("lost", 3, "--lang", "ko", lost=True), checked("english", 9)]
    (here / "policy.yaml").write_text(_POLICY)
    base, *candidates = (f"evalq-runs/{each.path.name}" for each in folders)
    for cand in candidates:
        gate = ["gate", cand, "--policy", "policy.yaml", "--baseline", base]
        for words in (["compare", base, cand], gate, [*gate, "--as-recorded"]):
            assert CliRunner().invoke(cli, [*words, "-o", "page.html"]).exit_code in (0, 1, 4)
            page = (here / "page.html").read_text()
            if cand.endswith("english"):
                assert '<html lang="en">' in page
                assert not _HANGUL.search(page)
                continue
            names = (base, cand, "pass_rate", "score", "GO", "NO-GO", "SUSPECT", "INCONCLUSIVE", "contains")
            others = re.compile('wanted "yes", found no|output: boom')
            assert [each for each in english_in(page, *names) if not others.search(each)] == []
            assert '<td dir="auto">checks.pass_rate</td>' in page or words[0] == "compare"


def test_a_suite_says_the_language_of_its_reports(here: Path) -> None:
    """By run, as an option of its evaluator."""
    checked("outputs", 3)
    runs = [{"evaluator": "checks", "cases": ["cases.json"], "outputs": ["outputs.jsonl"], "name": "one"}]
    runs.append({**runs[0], "name": "two", "lang": "ko"})
    (here / "suite.json").write_text(json.dumps({"runs": runs}))
    assert CliRunner().invoke(cli, ["run", "suite.json", "--inline", "--quiet", "--out", "all"]).exit_code == 0
    pages = [next((here / "all").glob(f"*{name}*/report.html")).read_text()[16:32] for name in ("one", "two")]
    assert pages == ['<html lang="en">', '<html lang="ko">']


def test_what_others_wrote_stays_as_it_is(here: Path) -> None:
    """Cases, questions and answers that are called like a word of the table."""
    folder = checked("one", 3, "--lang", "ko")
    page = (folder.path / "report.html").read_text()
    for case in ("Records", "passed", "Summary"):
        assert f'dir="auto">{case}</a>' in page
        assert f'dir="auto">{case}#0</span>' in page
    assert '<div class="said" dir="auto">Records</div>' in page
    with viewing() as browser:
        body = browser.enter().get(f"/run/{folder.info().run}/case?id=Records").body
        assert '<h1 dir="auto">Records</h1>' in body
        assert '<div class="said" dir="auto">Records</div>' in body


def test_a_page_has_the_language_of_its_report(here: Path) -> None:
    """English unless asked; planagent's own report is Korean. Report.json is the same in both."""
    korean, english = checked("korean", 3, "--lang", "ko"), checked("english", 3)
    assert '<html lang="ko">' in (korean.path / "report.html").read_text()[:100]
    page = (english.path / "report.html").read_text()
    assert '<html lang="en">' in page[:100]
    assert not _HANGUL.search(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert korean.report()["results"]["by_case"] == english.report()["results"]["by_case"]
    assert CliRunner().invoke(cli, ["report", "evalq-runs/korean", "-o", "again.html"]).exit_code == 0
    assert Path("again.html").read_text() == (korean.path / "report.html").read_text()
    with viewing() as browser:
        languages = [
            re.findall(r'<html lang="(\w+)">', browser.enter().get(path).body)[0]
            for path in ("/", f"/run/{korean.info().run}", f"/run/{english.info().run}")
        ]
    assert languages == ["en", "ko", "en"]
    (here / "in").mkdir()
    request = plugins.get("planagent").sample.write(here / "in", 20, 1)  # type: ignore[union-attr]  # it has one
    own = evaluated("planagent", *request.inputs, out="own")
    asked = evaluated("planagent", *request.inputs, "--lang", "en", out="asked")
    assert [(each.path / "report.html").read_text()[16:32] for each in (own, asked)] == [
        '<html lang="ko">',
        '<html lang="en">',
    ]


def test_every_entry_fills_the_holes_of_its_text() -> None:
    """As many as there are, each by its number; and none has an English text as its Korean one."""
    for source, target in KOREAN.items():
        holes = len(re.findall(r"\{[nx]\}", source))
        numbers = {int(each) for each in re.findall(r"\{(\d)\}", target)}
        assert numbers <= set(range(holes or 2)), source
        assert holes == 0 or len(numbers) == holes, source
        assert _HANGUL.search(target) or not _WORDS.search(target) or target == "ID" or source.startswith("{n}"), source


def test_the_script_has_no_text_without_an_entry() -> None:
    """Neither one that is looked up, nor one that is written as it is."""
    script = table_script()
    assert set(re.findall(r'\bw\("([^"]+)"\)', script)) <= KOREAN.keys()
    plain = re.sub(r"//[^\n]*|\bw\(\"[^\"]+\"\)", "", script)
    assert re.findall(r'"[A-Z][a-z]+ [a-z ]+[.:]?"|make\("\w+", \{[^}]*\}, "[A-Z]', plain) == []


@pytest.mark.parametrize(
    ("text", "korean"),
    [
        ("3 of 9 outputs passed", "출력 9개 중 3개 통과"),
        ("1 of 2 judged outputs passed; 1,000 without a verdict (errors)",
         "판정된 출력 2개 중 1개 통과; 판정 없음 1,000개 (오류)"),
        ("2.5 to 97.5 %, 95 % interval", "2.5 ~ 97.5 %, 95 % 구간"),
        ("Nobody wrote this.", "Nobody wrote this."),
        ("", ""),
        ("42", "42"),
    ],
)  # fmt: skip
def test_texts_with_numbers_are_written_anew(text: str, korean: str) -> None:
    with written_in("ko"):
        assert word(text) == korean
    assert word(text) == text


def test_a_language_ends_with_its_block_and_another_one_is_english() -> None:
    take: Callable[[], str] = lambda: str(element("p", "Records"))  # noqa: E731 - a short name
    with written_in("ko"):
        assert take() == "<p>레코드</p>"
        assert str(element("p", "Records", dir="auto")) == '<p dir="auto">Records</p>'
        assert str(element("option", "Records", value="Records")) == '<option value="Records">Records</option>'
        with written_in("xx"):
            assert (page_language(), take()) == ("en", "<p>Records</p>")
    assert take() == "<p>Records</p>"
