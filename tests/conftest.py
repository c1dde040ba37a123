"""What holds for every test: hypothesis looks at answers, never at how long a busy machine took for them.

And who runs what, where several processes run tests: `tests.spread` says.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("evalq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evalq")


@pytest.hookimpl(optionalhook=True)  # without xdist there is nobody to share tests out to
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist asks who shares out the tests."""
    from tests.spread import Spread

    config.option.loadscopereorder = False  # the order is that of the items
    return Spread(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests first, where several processes run them."""
    if hasattr(config, "workerinput"):
        from tests.spread import turn

        items.sort(key=lambda item: turn(item.nodeid))
