"""A sweep that asks for certain settings of its target is called under these alone, whoever else there is to call."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.errors import UsageError
from evalq.evalcore.model.calls import Attempt, Output
from evalq.workers.targets import load_targets
from evalq.workers.targets.target import config_digest
from tests.agents.server import Agent, running_agent
from tests.integration.harness import Server, running_server, wait_until
from tests.unit.producer.test_sweep_driver import CASES, Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Callers in threads cannot have signal handlers."""
    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", lambda *_: None)
    with running_server(tmp_path) as server, running_agent() as service:
        yield Stage(tmp_path, server, service)


def _other(stage: Stage, server: Server, service: tuple[Agent, str]) -> Stage:
    """The same fleet's other host, whose targets file has another temperature."""
    entry = json.loads((stage.folder / "targets.yaml").read_text())
    entry["targets"]["chat"]["options"] = {"temperature": 1}
    folder = stage.folder / "other"
    folder.mkdir()
    found = Stage(folder, server, service)
    (folder / "targets.yaml").write_text(json.dumps(entry))
    return found


def test_a_host_with_other_settings_makes_no_call_of_it(stage: Stage) -> None:
    """Alone it learns that before anything is called; beside one that has them it leaves all calls to that one."""
    url = json.loads((stage.folder / "targets.yaml").read_text())["targets"]["chat"]["base_url"]
    other = _other(stage, stage.server, (stage.agent, url))
    wanted, others = (config_digest(load_targets(each.folder / "targets.yaml")["chat"]) for each in (stage, other))
    assert wanted != others
    with other.calling():
        sweep = stage.sweep("alone", 2, config=wanted, extends="vs-1")  # type: ignore[arg-type]  # texts, too
        with pytest.raises(UsageError, match=f"than when vs-1 was asked .digest {wanted} then, {others} now."):
            stage.driver(sweep, "one").drive(lambda standing: None)
        assert not stage.agent.calls
        with stage.calling():
            wait_until(lambda: len(_callers(stage)) == 2, "both hosts can be asked")
            sweep = stage.sweep("both", 3, config=wanted, extends="vs-1")  # type: ignore[arg-type]  # texts, too
            stage.driver(sweep, "two").drive(lambda standing: None)
    found = [output for call in range(3 * CASES) if (output := sweep.recorded.get(call)) is not None]
    assert ({output.config for output in found}, len(found)) == ({wanted}, 3 * CASES)
    assert stage.agent.calls.total() == 3 * CASES


def test_a_run_that_is_resumed_under_other_settings_says_so(stage: Stage) -> None:
    """Once; under the same ones, or with nothing recorded, it has nothing to say."""
    wanted = config_digest(load_targets(stage.folder / "targets.yaml")["chat"])
    with stage.calling():
        for name, config in (("same", wanted), ("other", "0" * 16), ("new", "")):
            sweep = stage.sweep(name, 1)
            prompt = next(sweep.prompts())
            said = (0, prompt.case, "", 0, prompt.digest, "chat", config, msgspec.Raw(b"{}"))
            sweep.recorded.add([Output(*said, attempts=(Attempt(),))] if config else [])
            driver = stage.driver(sweep, name)
            driver.drive(lambda standing: None)
            assert driver.work.warnings.knows("changed") == (name == "other")


def _callers(stage: Stage) -> dict[str, object]:
    from evalq.workers.ledger.heartbeats import Heartbeats

    with contextlib.suppress(msgspec.DecodeError):
        return dict(Heartbeats(stage.server.client).callers())
    return {}
