"""Sessions of pytest in this process, for tests of the plug-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

PLAIN = ("-p", "no:asyncio", "-p", "no:deepeval", "-p", "no:cacheprovider")
_KEPT: dict[str, ModuleType] = {}


class _Keeping:
    """Remembers what a session has imported by its end."""

    def pytest_unconfigure(self) -> None:
        _KEPT.update(sys.modules)


def session_here(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Pytest with these arguments."""
    _put_back()
    return pytester.runpytest_inprocess(*PLAIN, *words, plugins=[_Keeping()])


@pytest.fixture(autouse=True)
def keep_modules() -> Iterator[None]:
    """Pytester forgets what its sessions import, and a module that is imported twice is two; numpy cannot be."""
    yield
    _put_back()


def _put_back() -> None:
    for name, module in _KEPT.items():
        if not name.startswith(("test_", "conftest")):
            sys.modules.setdefault(name, module)
