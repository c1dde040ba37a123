"""A session of pytest with suites: which of its processes begins their runs, and what becomes of them at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from evalq._pytest.items import SuiteFile, SuiteTest
from evalq._pytest.runs import SuiteRuns
from evalq.evalcore.errors import EvalqError
from evalq.evalcore.views.markdown import visible
from evalq.producer.suites.suite_file import load_suite
from evalq.workers.settings import load_settings

__all__ = ["begin", "begin_for_workers", "end", "put_last", "told_at_end"]

_BEGUN = pytest.StashKey[dict[Path, SuiteRuns]]()
_TOLD = pytest.StashKey[list[str]]()


def put_last(items: list[pytest.Item]) -> None:
    """Have other tests run while the fleet evaluates."""
    items.sort(key=lambda item: isinstance(item, SuiteTest))


def begin(session: pytest.Session) -> None:
    """Enqueue the suites of which any test is left to be run."""
    for item in session.items:
        file = item.getparent(SuiteFile) if isinstance(item, SuiteTest) else None
        if file is not None:
            _enqueue(session.config, file.path, file.runs)


def begin_for_workers(config: pytest.Config, paths: Iterable[Path], session: str) -> None:
    """The same, of suites that processes of pytest-xdist have collected in the session of this key.

    What is wrong with a suite, its tests say.
    """
    begun = config.stash.setdefault(_BEGUN, {})
    for path in paths:
        if path in begun:
            continue
        try:
            runs = SuiteRuns(
                config, path, load_suite(path, load_settings(os.environ.get("EVALQ_SETTINGS") or None).roots), session
            )
        except EvalqError:
            continue
        _enqueue(config, path, runs)


def _enqueue(config: pytest.Config, path: Path, runs: SuiteRuns) -> None:
    begun = config.stash.setdefault(_BEGUN, {})
    if path not in begun:
        begun[path] = runs
        with contextlib.suppress(OSError):  # the first test of the suite tries again, and says what is wrong
            runs.begin()


def end(config: pytest.Config) -> None:
    """End what no test has waited for: after Ctrl-C, or where pytest stops at a failure."""
    begun, messages = config.stash.get(_BEGUN, {}), config.stash.setdefault(_TOLD, [])
    for runs in begun.values():
        runs.interrupt()
    for path, runs in begun.items():
        said = runs.stop()
        if said:
            messages.append(visible(f"{path.name}: {said}"))


def told_at_end(config: pytest.Config) -> list[str]:
    """What to say of it."""
    return config.stash.get(_TOLD, [])
