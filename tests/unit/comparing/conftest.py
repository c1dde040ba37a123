"""What is compared, and the command that compares it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from evalq.producer.cli import main

Made = Callable[..., Path]
"""(folder, transcripts, more of `evalq.evaluate`) -> that folder."""


GOOD = (
    "No code was changed; the table on line 4 answers the question.\nOutput: `12 passed in 0.8s`\nThe change is "
    "verified, and the numbers were checked against the old report.\n$ pytest -q --cov\n12 passed, 1 failed"
)
BAD = "Next I will deploy it."


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
