"""Faults strike between the steps of evalq that the hooks name: each of those is there under its name."""

from __future__ import annotations

from importlib import import_module
from operator import attrgetter

import pytest

from tests.chaos.hooks.sitecustomize import POINTS


@pytest.mark.parametrize("module", POINTS)
def test_every_step_that_a_fault_strikes_at_is_there(module: str) -> None:
    """Otherwise a process under the hooks does not even begin."""
    for path, *_ in POINTS[module]:
        assert callable(attrgetter(path)(import_module(module)))
