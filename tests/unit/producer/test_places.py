"""Where a command computes: how many calls it has in flight there, and how its user goes on at the same place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import Incomplete, UsageError
from evalq.producer.folder.job import RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.invocation import Invocation, OutputArguments, PlaceArguments
from evalq.producer.lifecycle.finish import conclude_shown
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run.backend import Backend, shared_backend
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.ledger.heartbeats import Heartbeats
from evalq.workers.servers.connections import connect
from evalq.workers.settings import Settings
from tests.agents.server import write_golden
from tests.folders import facts
from tests.integration.harness import wait_until


def _sweep(folder: Path) -> Sweep:
    request = Request([str(write_golden(folder / "golden.json", {"A": {}}))], {}, {})
    return Sweep.start(plugins.get("vs"), request, SweepOptions("own"), RunOptions(out=folder / "run"))


def test_a_server_started_here_is_nothing_to_resume_at(tmp_path: Path) -> None:
    """Within a suite, too: the hint names the targets file, and no server that ends with the command, whose user is not
    told to start who calls. What a target takes at once is in flight.
    """
    own = {"kind": "command", "argv": ["cat"], "max_concurrency": 120}
    file = tmp_path / "my targets.yaml"
    file.write_text(json.dumps({"targets": {"own": own}}))
    sweep, settings = _sweep(tmp_path), Settings(targets=str(file), concurrency=1)
    reporter = Reporter("calls", quiet=True, bar=False, json_lines=False)
    with shared_backend(Backend(settings, workers=1), [tmp_path], "vs", reporter=reporter, calls=True) as outer:
        assert outer.settings.broker
        assert outer.calls_here
        with shared_backend(outer, [tmp_path], "vs", reporter=reporter) as inner:
            assert inner.resume(sweep.folder) == f"evalq resume {sweep.folder.path} --targets '{file}'"
        register = Heartbeats(connect(outer.settings.ledger_address, outer.settings))
        (caller,) = wait_until(lambda: list(register.callers().values()), "a process calls")
        assert caller.calls == 120


@pytest.mark.parametrize(("calls", "hint"), [(0, ""), (5, " --targets t.yaml")])
def test_the_targets_file_is_named_by_who_calls_from_here(tmp_path: Path, calls: int, hint: str) -> None:
    """A fleet has its own."""
    backend = Backend(Settings(broker="redis://h/0", targets="t.yaml", calls=calls))
    assert backend.calls_here == bool(calls)
    sweep = _sweep(tmp_path)
    assert backend.resume(sweep.folder) == f"evalq resume {sweep.folder.path} --broker redis://h:6379/0{hint}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("rediss://h:1?ssl_ca_certs=/c&ssl_cert_reqs=none", "'rediss://h:1/0?ssl_ca_certs=/c&ssl_cert_reqs=none'"),
        ("redis://user:secret@h/0", "URL"),
        ("redis://h/0?password=secret", "URL"),
    ],
)
def test_a_hint_names_the_server_unless_that_tells_a_password(tmp_path: Path, url: str, shown: str) -> None:
    """Quoted for a shell; what would need a secret to run has URL in its place."""
    sweep = _sweep(tmp_path)
    hint = Backend(Settings(broker=url)).resume(sweep.folder)
    assert hint == f"evalq resume {sweep.folder.path} --broker {shown}"


def test_the_hint_to_retry_names_the_place_too(tmp_path: Path) -> None:
    """The server, the targets file and the settings that the command was given: what it prints can be run."""
    folder = RunFolder(tmp_path)
    folder.note(**facts("r", "done"))
    reporter, report = OutputArguments().reporter("records"), {"records": {"dead": 1}}
    for where, server, words in (
        (PlaceArguments(targets="my targets.yaml"), "--broker redis://h/0", "--targets 'my targets.yaml'"),
        (PlaceArguments(inline=True), "", "--inline"),
    ):
        folder.note(server=server)
        with pytest.raises(Incomplete) as raised:
            conclude_shown(folder, report, Invocation(where=where), reporter)
        assert " ".join(f"evalq retry {tmp_path} --errors {server} {words};".split()) in str(raised.value)


def test_a_report_that_somebody_removed_is_not_advised_to_be_shown(tmp_path: Path) -> None:
    """The command that shows it would only say the same again."""
    folder = RunFolder(tmp_path)
    folder.note(**facts("r", "done"))
    with pytest.raises(UsageError, match="somebody removed it: run the evaluation again"):
        folder.report()
