"""What tests of several rooms ask for: a server, and finished runs in the current folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import evalq
from evalq.evalcore.contract import plugins
from evalq.evalcore.version import code_parts, code_version
from tests.integration.harness import Server, running_server
from tests.unit.comparing.conftest import BAD, GOOD, Made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module."""
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with no server named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALQ_BROKER", raising=False)
    return tmp_path


@pytest.fixture
def made(here: Path) -> Made:
    """Makes the folder of a verification run of transcripts, each (id, whether it complies)."""

    def make(name: str, transcripts: Sequence[tuple[str, bool]], **more: object) -> Path:
        lines = [json.dumps({"id": case, "actual_output": GOOD if passed else BAD}) for case, passed in transcripts]
        (here / "in.jsonl").write_text("\n".join(lines) + "\n")
        run = evalq.evaluate("verification", "in.jsonl", folder=name, **more)  # type: ignore[arg-type]  # any of them
        assert run.path is not None
        return run.path

    return make


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Registers evaluators, each (name, module:object), beside those that are installed, in this test alone."""
    real = plugins.entry_points
    kept = (plugins.entries, plugins.get, plugins.packages, plugins._registered, code_parts, code_version)

    def add(*evaluators: tuple[str, str]) -> None:
        points = [EntryPoint(name, value, plugins.GROUP) for name, value in evaluators]
        monkeypatch.setattr(
            plugins, "entry_points", lambda group: [*real(group), *(points if group == plugins.GROUP else ())]
        )
        for cached in kept:
            cached.cache_clear()

    yield add
    monkeypatch.undo()
    for cached in kept:  # else tests that follow would find them
        cached.cache_clear()
