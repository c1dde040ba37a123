"""Who runs which test where several processes do (`pytest -n`): the long ones first, each to whoever is free.

Tests of real servers and workers wait most of their time, so there are more processes than cores; those of the units
keep cores busy and come last, file by file, so that all processes end at about the same time.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

LONG = ("live", "deploy", "chaos", "guide", "page", "doors", "integration", "fuzz", "mutation", "contract", "grafana")
"""Folders whose tests take seconds each: first those that hold a test, or a file of them, that takes longest."""
WAITING = tuple(
    f"tests/unit/{name}.py"
    for name in (
        *("producer/test_sweep_driver", "producer/test_patience", "producer/test_begun_here", "api/test_plugin"),
        *("workers/test_failures", "workers/test_broker", "workers/test_isolation", "workers/test_pacing_rules"),
        *("targets/test_functions", "targets/test_calls", "targets/test_hostile", "compare/test_planning"),
    )
)
"""Of the units those that take long, most of them because they wait."""
TOP = Path(__file__).parents[1]
_SHARED = re.compile(r'scope="(module|class|package)"')


class Spread(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """xdist's way to share out units of work, with units and an order of our own."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)


def unit(nodeid: str) -> str:
    """What goes to one process: a long test by itself, if its file makes nothing once for all of its tests."""
    return nodeid if turn(nodeid)[1] else nodeid.partition("::")[0]


def turn(nodeid: str) -> tuple[int, bool]:
    """When a test comes: by its folder's place in `LONG`, files that stay together first; `WAITING`; and the rest."""
    file = nodeid.partition("::")[0]
    folder = file.removeprefix("tests/").partition("/")[0]
    if folder in LONG or file in WAITING:
        return LONG.index(folder) if folder in LONG else len(LONG), not _shares(file)
    return len(LONG) + 1, False


@cache
def _shares(file: str) -> bool:
    return bool(_SHARED.search((TOP / file).read_text(encoding="utf-8")))
