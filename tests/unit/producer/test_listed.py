"""`evalq list`, of runs that are called anything."""

from __future__ import annotations

import signal

import pytest

from evalq.producer.cli import main
from tests.unit.comparing.conftest import Made


def test_a_run_is_one_line_whatever_its_suite_is_called(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither its line ends nor what a terminal would obey."""
    for name in ("one", "two"):
        made(f"evalq-runs/{name}", [("c", True)], suite="night\nly\r\x07\u202e")
    handler = signal.getsignal(signal.SIGTERM)
    capsys.readouterr()
    assert main(["list"]) == 0
    signal.signal(signal.SIGTERM, handler)
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 3
    assert all(" night ly" in line and line.isprintable() for line in lines[:2])
