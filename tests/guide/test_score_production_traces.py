"""The page about production traces, walked: its checks and commands on traces of the attributes that it names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from evalq.producer.cli import cli
from tests.unit.checks.test_traces import agent, request, write

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "score-production-traces.md").read_text(encoding="utf-8")


def _blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_the_commands_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night's report by the attributes, and one window of the same traces."""
    monkeypatch.chdir(tmp_path)
    collector, checks = _blocks("yaml")
    assert yaml.safe_load(collector)["exporters"]["file"]["path"].endswith("traces.jsonl")
    Path("checks.yaml").write_text(checks)
    attributes = [{"route": route, "customer.tier": "gold"} for route in ("refund", "order", "other")]
    spans = [
        each
        for trace, given in enumerate(attributes, start=1)
        for each in agent(trace, **{key.replace(".", "__"): value for key, value in given.items()})
    ]
    write(tmp_path / "traces.jsonl", request(spans))
    night, follow = (shlex.split(block)[1:] for block in _blocks("sh"))
    done = CliRunner().invoke(cli, night)
    assert done.exit_code == 0, done.output
    assert "1 of 2 outputs passed" in done.stdout
    assert "customer.tier:gold" in done.stdout
    assert "1 traces are not selected" in done.stderr
    done = CliRunner().invoke(cli, [*follow, "--passes", "1", "--settle", "0"])
    assert done.exit_code == 0, done.output
    assert "1 of 2 traces" in done.stderr
