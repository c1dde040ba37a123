"""A module that asks for a ``server`` has one of its own, unless it says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.harness import Server, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a module."""
    with running_server(tmp_path_factory.mktemp("server")) as started:
        yield started
