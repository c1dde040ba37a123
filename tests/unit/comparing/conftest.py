"""Finished runs to compare, in the current folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import evalq
from evalq.producer.cli import main

Made = Callable[[str, Sequence[tuple[str, bool]]], Path]


GOOD = (
    "No code was changed; the table on line 4 answers the question.\nOutput: `12 passed in 0.8s`\nThe change is "
    "verified, and the numbers were checked against the old report.\n$ pytest -q --cov\n12 passed, 1 failed"
)
BAD = "Next I will deploy it."


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with no server named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    return tmp_path


@pytest.fixture
def made(here: Path) -> Made:
    """Makes the folder of a verification run of transcripts, each (id, whether it complies)."""

    def make(name: str, transcripts: Sequence[tuple[str, bool]]) -> Path:
        lines = [json.dumps({"id": case, "actual_output": GOOD if passed else BAD}) for case, passed in transcripts]
        (here / "in.jsonl").write_text("\n".join(lines) + "\n")
        run = evalq.evaluate("verification", "in.jsonl", folder=name)
        assert run.path is not None
        return run.path

    return make


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


Command = Callable[..., Ended]


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Calls the command line in this process, as its entry does."""
    handler = signal.getsignal(signal.SIGTERM)

    def call(*args: str) -> Ended:
        capfd.readouterr()
        return Ended(main(list(args)), *capfd.readouterr())

    yield call
    signal.signal(signal.SIGTERM, handler)
