"""What holds for every test: hypothesis looks at answers, never at how long a busy machine took for them.

And who runs what where several processes run tests (`--dist loadgroup`): most tests of real servers and workers wait
for something most of the time, so each goes to whoever is free; the quick ones stay together by file, and come last.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("evalq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evalq")

LONG = ("live", "chaos", "deploy", "integration", "doors", "guide", "fuzz")
"""Folders of tests that each take seconds: first those that take longest."""
TOP = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test goes alone if it is long and shares nothing that its module makes once; others go with their file."""
    if not config.getoption("loadgroup", default=False):
        return
    items.sort(key=_turn)
    for item in items:
        if _turn(item) == len(LONG) or _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(TOP).as_posix()))


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(TOP).parts[0]
    return LONG.index(folder) if folder in LONG else len(LONG)


def _shares(item: pytest.Item) -> bool:
    """Whether it uses a fixture that is made once a module: a stack, a node, a log of 150 MB."""
    info = getattr(item, "_fixtureinfo", None)
    found = info.name2fixturedefs.values() if info else ()
    return any(definitions[-1].scope == "module" for definitions in found)
