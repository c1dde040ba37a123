"""A session of pytest with suites: start their runs at its beginning, and stop them at its end."""

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

__all__ = ["begin", "begin_for_workers", "end", "end_messages", "put_last"]

_BEGUN = pytest.StashKey[dict[Path, SuiteRuns]]()
_MESSAGES = pytest.StashKey[list[str]]()


def put_last(items: list[pytest.Item]) -> None:
    """Sort suite tests last, so that other tests run while the fleet evaluates."""
    items.sort(key=lambda item: isinstance(item, SuiteTest))


def begin(session: pytest.Session) -> None:
    """Enqueue the suites that have a selected test."""
    for item in session.items:
        file = item.getparent(SuiteFile) if isinstance(item, SuiteTest) else None
        if file is not None:
            _enqueue(session.config, file.path, file.runs)


def begin_for_workers(config: pytest.Config, paths: Iterable[Path], session: str) -> None:
    """Enqueue the suites ``paths`` that workers of pytest-xdist have collected; ``session`` is their common key.

    Ignores invalid suites, which their own tests report.
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
        with contextlib.suppress(OSError):  # the first test of the suite tries again, and reports the error
            runs.begin()


def end(config: pytest.Config) -> None:
    """Stop runs that no test has waited for, after Ctrl-C or when pytest stops at a failure."""
    begun, messages = config.stash.get(_BEGUN, {}), config.stash.setdefault(_MESSAGES, [])
    for runs in begun.values():
        runs.interrupt()
    for path, runs in begun.items():
        said = runs.stop()
        if said:
            messages.append(visible(f"{path.name}: {said}"))


def end_messages(config: pytest.Config) -> list[str]:
    """The messages about runs that `end` stopped."""
    return config.stash.get(_MESSAGES, [])
