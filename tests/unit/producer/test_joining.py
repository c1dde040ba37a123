"""Taking over a run that nobody drives, while others want it, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import UsageError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle.join import join
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import resume
from evalq.producer.servers import Servers
from evalq.workers.settings import Settings
from tests.unit.producer.quiet import QUIET

HERE = Backend(Settings(), inline=True)


def begun(folder: Path) -> RunFolder:
    """The folder of a run that is planned, and that nobody drives."""
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 3, seed=1)
    asked = RunOptions(out=folder / "run")
    Job.start(plugins.get("planagent"), Request([str(folder / "rows.csv")], {}, {}), asked)
    return RunFolder.existing(folder / "run")


def test_who_comes_too_late_to_take_a_run_over_has_its_report(tmp_path: Path) -> None:
    """Another one that waited had the folder first, and ended the run before it could be looked at again."""

    def late(folder: RunFolder) -> None:
        resume(folder, HERE, QUIET)
        resume(folder, HERE, QUIET)

    folder = begun(tmp_path)
    with Servers(HERE.settings) as servers:
        assert join(folder, servers, QUIET, late) is None
    assert folder.info().state == "done"
    assert folder.report()["records"]["total"] == 3


def test_what_is_wrong_with_the_request_is_still_said(tmp_path: Path) -> None:
    """Where the run is not done, a refusal is not taken for somebody who was faster."""

    def refuse(folder: RunFolder) -> None:
        raise UsageError("no")

    with Servers(HERE.settings) as servers, pytest.raises(UsageError, match="no"):
        join(begun(tmp_path), servers, QUIET, refuse)
