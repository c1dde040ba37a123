"""The Korean pages show what the English ones show: the same code, the same keys, the same links out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evalq.producer.cli import main

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("planagent", "vs", "selfcheck")
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _written(path: Path) -> str:
    """The part of a page that a person wrote."""
    return path.read_text(encoding="utf-8").partition("\n## Options\n")[0]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_code_and_the_keys_of_the_english_one(name: str) -> None:
    """The English example runs in a test, and this one is the same; a key that is new there is missed here."""
    english, korean = _written(DOCS / "reference" / "evaluators" / f"{name}.md"), _written(DOCS / "ko" / f"{name}.md")
    assert _BLOCK.findall(korean) == _BLOCK.findall(english)
    rows = re.compile(r"^\| `(\w+)`", re.MULTILINE)
    assert set(rows.findall(english)) <= set(rows.findall(korean))
    assert len(re.findall(r"[가-힣]", korean)) > 500


def test_the_first_page_has_the_commands_of_the_english_one() -> None:
    """README's commands and policy, which a test there follows; `test_readme` follows these, too."""
    english = _BLOCK.findall((DOCS.parent / "README.md").read_text(encoding="utf-8"))
    korean = (DOCS / "ko" / "index.md").read_text(encoding="utf-8")
    shown = [line for block in english for line in block.splitlines() if line.startswith(("evalq ", "gates", "  - {"))]
    assert len(shown) > 7
    assert [line for line in shown if line not in korean] == ["evalq score short.py outputs.jsonl"]
    for name in PAGES:
        assert f"({name}.md)" in korean


def test_its_questions_become_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with Korean headers, as Excel saves it: with a byte order mark."""
    monkeypatch.chdir(tmp_path)
    (table,) = re.findall(
        r"^```csv\n(.*?)^```", (DOCS / "ko" / "index.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    Path("questions.csv").write_text(table, encoding="utf-8-sig")
    assert main(["init", "--from", "questions.csv"]) in (None, 0)
    cases = Path("cases.yaml").read_text(encoding="utf-8")
    assert "택배는 언제 오나요?" in cases
    assert "icontains: 월요일" in cases
