"""A job without a server begins in forked processes: a small one ends there, and workers take over any other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import InfrastructureError, InputError, Interrupted, StorageError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import Seal
from evalq.producer.folder.files import JOURNAL
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.journal import KeptAnswers, count_answers
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.lifecycle.start import begin_or_join
from evalq.producer.local import processes
from evalq.producer.local.forks import Forks
from evalq.producer.local.processes import Children
from evalq.producer.monitor.progress import Reporter
from evalq.producer.run import backend, chunks, execute, local_pool
from evalq.producer.run.backend import Backend
from evalq.producer.run.chunks import Collector
from evalq.producer.run.execute import carry_out, resume
from evalq.workers.settings import Settings
from tests.integration.harness import remove, same_answer, short_folder
from tests.unit.producer.quiet import QUIET

ROWS = 60
NOWHERE = Backend(Settings())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows.csv, and with an inline run over it in ./inline."""
    folder = tmp_path_factory.mktemp("made")
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, ROWS, seed=7)
    with contextlib.chdir(folder):
        carry_out(job("inline"), Backend(Settings(), inline=True), QUIET)
    return folder


@pytest.fixture(autouse=True)
def rows(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rows.csv in the current folder, and the report of an inline run over it in ./inline; two cores, so that not all
    chunks are ordered at once."""
    monkeypatch.setattr(local_pool, "usable_cpus", lambda: 2)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def job(name: str, size: int | None = 1) -> Job:
    """A run over rows.csv, in chunks of ``size`` rows."""
    asked = RunOptions(out=Path(name), chunk_size=size)
    return Job.start(plugins.get("planagent"), Request(["rows.csv"], {}, {}), asked)


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a server fails, as where none is installed."""

    def missing() -> str:
        raise InfrastructureError("no server to embed")

    monkeypatch.setattr(processes, "server_program", missing)


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize("size", [None, 1, 7])
def test_a_small_job_starts_nothing_and_has_the_inline_answer(size: int | None) -> None:
    """Byte for byte, in one chunk or in many that come in any order; run.json says that it is done."""
    carry_out(job("run", size), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))
    info = RunFolder(Path("run")).info()
    assert (info.state, info.epoch, info.server, info.progress) == ("done", 0, "", {})
    assert not Path("run", JOURNAL).exists()


def _long(monkeypatch: pytest.MonkeyPatch, waits: Callable[[str], bool] = lambda url: True) -> None:
    """Every job is long, and workers are taken for waiting when ``waits`` says so."""
    monkeypatch.setattr(local_pool, "LONG_SECONDS", 0.0)
    monkeypatch.setattr(local_pool, "workers_wait", waits)
    monkeypatch.setattr(local_pool, "_import_driver", lambda: None)


def test_workers_take_over_a_long_job_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed here is not computed again, and the report is the inline one's."""
    _long(monkeypatch)
    messages: list[str] = []
    monkeypatch.setattr(Reporter, "detail", lambda self, text: messages.append(text))
    carry_out(job("run"), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))
    progress = RunFolder(Path("run")).info().progress
    assert progress["chunks"] == ROWS
    assert 0 < progress["computed"] < ROWS, "some by workers, and some before"
    assert f"{ROWS} chunks, {progress['computed']} computed" in messages[-1]


def test_a_suite_s_later_runs_go_to_the_workers_that_an_earlier_one_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are started once; who comes after begins with them."""
    _long(monkeypatch)
    starts: list[Children] = []
    real = processes.embedded_server

    def started(children: Children) -> AbstractContextManager[str]:
        starts.append(children)
        return real(children)

    monkeypatch.setattr(processes, "embedded_server", started)
    with backend.shared_backend(NOWHERE, [Path.cwd()], "planagent", reporter=QUIET) as shared:
        carry_out(job("one"), shared, QUIET)
        carry_out(job("two"), shared, QUIET)
    assert len(starts) == 1
    assert RunFolder(Path("two")).info().progress["computed"] == ROWS
    same_answer(Path("two"), Path("inline"))


def test_how_long_the_rest_takes_is_reported_by_the_pace_since_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before there is another one it is as long as it has taken, and for half a second after it nothing is reported."""
    clock = [100.0]
    monkeypatch.setattr("evalq.producer.run.local_pool.time.monotonic", lambda: clock[0])
    begun = job("run", 10)
    collector = Collector(begun)
    later = backend.LazyBackend(lambda: NOWHERE)
    driven = local_pool.LocalPool(begun, collector, Forks(), later, QUIET)
    cut = list(driven.planner.chunks())
    begun.manifest.extend(cut)
    first, second = (
        b"+" + partial.digest.encode() + partial.data
        for partial in (chunks.evaluate(begun, chunk, chunks.read(begun, chunk)) for chunk in cut[:2])
    )
    left = []
    for seconds, answer in ((20.0, None), (0.0, first), (0.25, None), (0.0, second), (0.125, None), (0.625, None)):
        clock[0] += seconds
        if answer:
            driven._note(0 if answer is first else 1, answer)
        left.append(driven._left())
    bytes_left = begun.total_bytes / (cut[1].end - cut[1].start)
    assert left == pytest.approx([20.0, 0.0, 0.25, 0.0, 0.0, bytes_left])
    collector.close()


def test_a_job_of_which_nothing_comes_any_more_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little is left at the pace so far: the process that has the last chunk may have stopped for good."""
    clock = [100.0]
    monkeypatch.setattr("evalq.producer.run.local_pool.time.monotonic", lambda: clock[0])
    begun = job("run", 2)
    collector = Collector(begun)
    driven = local_pool.LocalPool(begun, collector, Forks(), backend.LazyBackend(lambda: NOWHERE), QUIET)
    begun.manifest.extend(list(driven.planner.chunks()))
    for chunk in begun.manifest.chunks[:-1]:
        clock[0] += 0.125
        partial = chunks.evaluate(begun, chunk, chunks.read(begun, chunk))
        driven._note(chunk.seq, b"+" + partial.digest.encode() + partial.data)
        driven._collect()
    assert driven._left() < 1.0
    clock[0] += local_pool.LONG_SECONDS
    assert driven._left() == local_pool.LONG_SECONDS
    collector.close()


@pytest.mark.usefixtures("no_server")
def test_where_nothing_can_be_started_a_long_job_ends_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once, with the reason."""
    _long(monkeypatch)
    carry_out(job("run"), NOWHERE, Reporter("rows", quiet=False, bar=False, json_lines=False))
    same_answer(Path("run"), Path("inline"))
    assert capsys.readouterr().err.count("this command's own processes compute all of it: no server to embed") == 1


@pytest.mark.parametrize(
    ("module", "name"), [(processes, "_short_tmp"), (subprocess, "Popen")], ids=["files", "processes"]
)
def test_where_the_system_lets_nothing_be_started_a_long_job_ends_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: ModuleType, name: str
) -> None:
    """It has the inline answer, and nothing that was made for the server stays."""
    _long(monkeypatch)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(processes, "_short_tmp", lambda: None)

    def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, name, refused)
    carry_out(job("run"), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))
    assert not list((tmp_path / "tmp").iterdir())


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder for temporary files, among them a socket, whose path may have 107 characters."""
    folder = short_folder()
    yield folder
    remove(folder)


def test_local_workers_leave_no_temporary_files(monkeypatch: pytest.MonkeyPatch, short: Path) -> None:
    """Though they are killed at the end."""
    monkeypatch.setattr(processes, "_short_tmp", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    monkeypatch.setenv("TMPDIR", str(short))
    carry_out(job("run"), Backend(Settings(), workers=1), QUIET)
    same_answer(Path("run"), Path("inline"))
    assert not list(short.iterdir())


def test_what_cannot_be_computed_here_is_left_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies here, or fails, costs its chunk and what is not collected; the rest is not computed again."""
    monkeypatch.setattr(local_pool, "_AHEAD", 4)  # of what one process answers while the other is slow
    real, here = chunks.evaluate, os.getpid()

    def worse(asked: Job, chunk: Any, data: bytes) -> Any:
        if chunk.seq == 20 and os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        if chunk.seq == 20:
            raise ValueError("a bug")
        return real(asked, chunk, data)

    monkeypatch.setattr("evalq.producer.run.local_pool.evaluate", worse)
    carry_out(job("run"), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))
    # Chunks are collected in order: what another process had done behind a slow one's is computed again, too.
    assert 40 <= RunFolder(Path("run")).info().progress["computed"] < ROWS

    def fails(asked: Job, chunk: Any, data: bytes) -> Any:
        if chunk.seq == 20:
            raise ValueError("a bug")
        return real(asked, chunk, data)

    monkeypatch.setattr("evalq.producer.run.local_pool.evaluate", fails)
    carry_out(job("other"), NOWHERE, QUIET)
    same_answer(Path("other"), Path("inline"))
    assert 40 <= RunFolder(Path("other")).info().progress["computed"] < ROWS


def _ordered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chunks that are computed here from now on."""
    ordered: list[int] = []
    real = Forks.order

    def order(self: Forks, number: int, order: bytes) -> None:
        ordered.append(number)
        real(self, number, order)

    monkeypatch.setattr(Forks, "order", order)
    return ordered


def _interrupted_at(monkeypatch: pytest.MonkeyPatch, look: int) -> None:
    class Shown(execute._Shown):
        looks = 0

        def __call__(self, standing: Any) -> None:
            self.looks += 1
            if self.looks == look:
                raise KeyboardInterrupt

    monkeypatch.setattr(execute, "_Shown", Shown)


@pytest.mark.usefixtures("no_server")
def test_an_interrupted_job_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C keeps what was collected, and a resume begins behind it, here again."""
    with monkeypatch.context() as patch:
        patch.setattr(local_pool, "_AHEAD", 4)  # one process may be slow: what the other answers is shown by and by
        _interrupted_at(patch, 5)
        with pytest.raises(Interrupted, match="evalq resume run"):
            carry_out(job("run"), NOWHERE, QUIET)
    assert RunFolder(Path("run")).info().state == "interrupted"
    held, _ = count_answers(Path("run", JOURNAL))
    assert 5 <= held < ROWS
    ordered = _ordered(monkeypatch)
    resume(RunFolder(Path("run")), NOWHERE, QUIET)
    assert ordered == list(range(held, ROWS))
    same_answer(Path("run"), Path("inline"))


@pytest.mark.usefixtures("no_server")
def test_a_job_interrupted_before_it_is_driven_is_reported_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder is there, and what computes it is just being imported: how to resume it is said, and it can be."""

    def importing(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(execute, "carry_out", importing)
        with pytest.raises(Interrupted, match="evalq resume run"):
            begin_or_join(lambda: job("run"), NOWHERE, QUIET, detach=False)
    assert RunFolder(Path("run")).info().state == "interrupted"
    resume(RunFolder(Path("run")), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))


@pytest.mark.usefixtures("no_server")
def test_a_folder_that_is_moved_away_can_be_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not told as one that may not be written; in its place again, the run goes on to the same bytes."""
    begun, finish = job("run"), Collector.finish

    def moved(self: Collector, seal: Seal) -> dict[str, Json]:
        Path("run").rename("elsewhere")
        return finish(self, seal)

    with monkeypatch.context() as patch:
        patch.setattr(Collector, "finish", moved)
        with pytest.raises(StorageError, match=r"^run: the run folder was moved or removed .*put it back, then resume"):
            carry_out(begun, NOWHERE, QUIET)
    Path("elsewhere").rename("run")
    resume(RunFolder(Path("run")), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))


@pytest.mark.usefixtures("no_server")
def test_a_folder_that_is_moved_away_is_not_reported_as_damaged() -> None:
    """Also where what is written there next is how the run stands, as at every look at a server."""
    begun = job("run")
    Path("run").rename("elsewhere")
    with pytest.raises(StorageError, match=r"^run: the run folder was moved or removed"):
        carry_out(begun, NOWHERE, QUIET)
    assert not Path("run").exists()


@pytest.mark.usefixtures("no_server")
def test_a_run_json_that_is_removed_is_not_reported_as_damaged() -> None:
    """What is there to be put back is named."""
    begun = job("run")
    Path("run/run.json").rename("elsewhere")
    with pytest.raises(StorageError, match=r"^run: its run\.json was moved or removed .*put it back, then resume"):
        carry_out(begun, NOWHERE, QUIET)
    assert not Path("run/run.json").exists()
    Path("elsewhere").rename("run/run.json")
    resume(RunFolder(Path("run")), NOWHERE, QUIET)
    same_answer(Path("run"), Path("inline"))


@pytest.mark.usefixtures("no_server")
def test_faulty_input_leaves_no_folder() -> None:
    """As inline: the fault is reported with its line."""
    with Path("rows.csv").open("a") as out:
        out.write('1,"a"b\n')
    with pytest.raises(InputError, match=r"rows\.csv"):
        carry_out(job("run", 7), NOWHERE, QUIET)
    assert not Path("run").exists()


@pytest.mark.usefixtures("no_server")
def test_a_retry_computes_what_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a finished run's retry keeps is taken from its folder, wherever it stands among the chunks."""
    begun = job("run")
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "drop_working_files", lambda self: None)
        carry_out(begun, NOWHERE, QUIET)
    KeptAnswers.keep_for_retry(begun.folder, {3, 40})
    begun.folder.note(state="retrying")
    ordered = _ordered(monkeypatch)
    resume(RunFolder(Path("run")), NOWHERE, QUIET)
    assert ordered == [3, 40]
    same_answer(Path("run"), Path("inline"))
