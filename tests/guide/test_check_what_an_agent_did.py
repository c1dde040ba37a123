"""The page about what an agent did, walked: its record and its checks as they stand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.checks.check import as_mapping, compile_check
from evalq.evalcore.evaluators.checks.vocabulary.registry import VOCABULARY
from evalq.producer.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "check-what-an-agent-did.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """The page's blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its record passes its checks; without its last call, it does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    (tmp_path / "outputs.jsonl").write_text(blocks("json")[0])
    (tmp_path / "cases.yaml").write_text(blocks("yaml")[0])
    command = shlex.split(blocks("sh")[0])[1:]
    assert main(command) in (None, 0)
    assert blocks("text")[0].strip() in capfd.readouterr().out
    record = json.loads(blocks("json")[0])
    (tmp_path / "outputs.jsonl").write_text(json.dumps({**record, "messages": record["messages"][:5], "output": "x"}))
    assert main(command) in (None, 0)
    assert "0 of 1 outputs passed" in capfd.readouterr().out


def test_the_table_names_checks() -> None:
    """Each name in its second column is a check, or an option or a value of one."""
    compile_check(as_mapping("no-repeat"))
    rows = [line.split(" | ")[1] for line in PAGE.splitlines() if line.startswith("| ") and "?" in line]
    named = {name.removeprefix("not-") for row in rows for name in re.findall(r"`([a-z][a-z-]+)`", row)}
    assert len(named & VOCABULARY.keys()) >= 13
    options = {"order", "kept", "exact", "prefix", "unordered", "any", "min", "max", "arguments", "schema", "tolerance"}
    assert named - VOCABULARY.keys() <= options | {"which", "every", "first", "last", "check"}
