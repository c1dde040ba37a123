"""Where a command computes: how many calls it has in flight there, and how its user goes on at the same place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalcore import registry
from evalcore.evaluator import Request
from producer.job import Asked
from producer.live.asked import Live
from producer.live.sweep import Sweep
from producer.progress import Reporter
from producer.session import Place, shared_place
from tests.agents.server import write_golden
from tests.integration.harness import wait_until
from workers.connect import connect
from workers.register import Register
from workers.settings import Settings


def _sweep(folder: Path) -> Sweep:
    request = Request([str(write_golden(folder / "golden.json", {"A": {}}))], {}, {})
    return Sweep.start(registry.get("vs"), request, Live("own"), Asked(out=folder / "run"))


def test_a_server_started_here_is_nothing_to_resume_at(tmp_path: Path) -> None:
    """Within a suite, too: the hint names the targets file, and no server that ends with the command. What a target
    takes at once is in flight.
    """
    own = {"kind": "command", "argv": ["cat"], "max_concurrency": 120}
    file = tmp_path / "my targets.yaml"
    file.write_text(json.dumps({"targets": {"own": own}}))
    sweep, settings = _sweep(tmp_path), Settings(targets=str(file), concurrency=1)
    reporter = Reporter("calls", quiet=True, bar=False, json_lines=False)
    with shared_place(Place(settings, workers=1), [tmp_path], "vs", reporter=reporter, calls=True) as outer:
        assert outer.settings.broker
        with shared_place(outer, [tmp_path], "vs", reporter=reporter) as inner:
            assert inner.resume(sweep.folder) == f"evalq resume {sweep.folder.path} --targets '{file}'"
        register = Register(connect(outer.settings.ledger_url, outer.settings))
        (caller,) = wait_until(lambda: list(register.callers().values()), "a process calls")
        assert caller.calls == 120


@pytest.mark.parametrize(("calls", "hint"), [(0, " --broker URL"), (5, " --broker URL --targets t.yaml")])
def test_the_targets_file_is_named_by_who_calls_from_here(tmp_path: Path, calls: int, hint: str) -> None:
    """A fleet has its own."""
    place = Place(Settings(broker="redis://h/0", targets="t.yaml", calls=calls))
    sweep = _sweep(tmp_path)
    assert place.resume(sweep.folder) == f"evalq resume {sweep.folder.path}{hint}"
