"""A reader that has enough of standard output: the exit code is evalq's, whichever click is installed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from evalq.producer.cli import main


@pytest.fixture(params=["8.3", "8.5"])
def version_of_click(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 8.5 does, where asked for: it ends outside of the block that caught the closed pipe, and names no cause."""
    whole = click.Group.main

    def ending(self: click.Group, **given: Any) -> Any:
        code: str | int | None
        try:
            return whole(self, **given)
        except SystemExit as ended:
            code = ended.code
        raise SystemExit(code)

    if request.param == "8.5":
        monkeypatch.setattr(click.Group, "main", ending)


@contextlib.contextmanager
def unread() -> Iterator[None]:
    """Standard output is a pipe that nobody reads; not by a fixture, whose stream pytest would replace by its own."""
    here, there = os.pipe()
    os.close(here)
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(BrokenPipeError), os.fdopen(there, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("version_of_click", "here")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["list", "--json"], ["list", "--help"]])
def test_it_ends_with_3_and_never_with_what_a_policy_answers(words: list[str]) -> None:
    """Help, the version and a command's own lines alike."""
    code = None
    with unread():
        code = main(words)
    assert code == 3
