"""The page about collapse, walked: its cases, its answers, what it shows, and a gate that blocks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from evalq.producer.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "find-collapse.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(yaml|python|sh|text)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    """The page's blocks of one kind."""
    return [text for found, text in BLOCKS if found == kind]


def test_the_page_finds_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its commands as they stand, but for those that need an agent or a judge."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    cases, policy = blocks("yaml")
    (tmp_path / "cases.yaml").write_text(cases)
    (tmp_path / "policy.yaml").write_text(policy)
    exec(compile(blocks("python")[0], "page", "exec"), {})  # noqa: S102 - the page's own
    check, _, _, gate = blocks("sh")
    assert main(shlex.split(check)[1:]) in (None, 0)
    shown = capfd.readouterr().out
    for line in blocks("text")[0].splitlines():
        assert line in shown
    assert main(shlex.split(gate)[1:]) == 1
    assert "no collapsed case" in capfd.readouterr().out
