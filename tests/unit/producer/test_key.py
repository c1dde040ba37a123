"""The secret of a run's chunks: who has it, where it may not be seen, and that nothing that is shown depends on it."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import AlreadyRunning, InputChanged, WireError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.records.digests import new_key
from evalq.producer.folder import job as keys
from evalq.producer.folder.files import HEAD, JOURNAL, KEPT, KEY
from evalq.producer.folder.job import Job, RunOptions, read_key
from evalq.producer.folder.journal import Replanned
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.run import execute
from evalq.producer.run.backend import Backend
from evalq.producer.run.chunks import PLAN_STEP, Planner, read
from evalq.producer.run.execute import carry_out, resume
from evalq.workers.broker.publisher import Broker
from evalq.workers.ledger.runs import RunLedger
from evalq.workers.recovery.reconciler import Reconciler
from evalq.workers.settings import Settings
from tests.integration.harness import Server
from tests.unit.producer.quiet import QUIET
from tests.unit.producer.stage import Report, Run, Stage, StopDriving, killed_at

INLINE = Backend(Settings(), inline=True)


@pytest.fixture
def stage(server: Server, tmp_path: Path) -> Stage:
    """A stage on an empty server; whoever drives is given half a minute of silence, which a busy machine may take."""
    server.client.flushall()
    return Stage(server, tmp_path, driver_seconds=30)


def _begun(folder: Path, name: str, **asked: object) -> Job:
    rows = folder / "rows.csv"
    if not rows.exists():
        with rows.open("w", encoding="utf-8", newline="") as out:
            write_rows(out, 60, seed=3)
    return Job.start(
        plugins.get("planagent"),
        Request([str(rows)], {}, {}),
        RunOptions(out=folder / name, chunk_size=10, **asked),  # type: ignore[arg-type]  # a test's own options
    )


def test_nothing_that_is_shown_depends_on_the_key(tmp_path: Path) -> None:
    """Two runs of one input: other keys and chunk digests, one id by --once, equal files, and no key left."""
    one, other = (_begun(tmp_path, name, once="k") for name in ("one", "other"))
    assert (one.run, one.header) == (other.run, other.header)
    assert one.key != other.key
    mine, theirs = (list(Planner(job).chunks()) for job in (one, other))
    assert all(a.digest != b.digest and a.span.end == b.span.end for a, b in zip(mine, theirs, strict=True))
    for job in (one, other):
        carry_out(job, INLINE, QUIET)
    for name in ("report.json", "records.jsonl", "manifest.json", "report.md", "results.yaml"):
        assert (one.folder.path / name).read_bytes() == (other.folder.path / name).read_bytes(), name
    secrets = (one.key.encode(), one.key.upper().encode(), bytes.fromhex(one.key))
    for path in one.folder.path.rglob("*"):
        assert path.name != KEY
        assert not path.is_file() or not any(secret in path.read_bytes() for secret in secrets)


def test_a_key_is_its_owners_alone_and_goes_with_the_folder(tmp_path: Path) -> None:
    """Mode 0600 whatever the umask is, in one file and no other; a copied folder plans the rest under it."""
    job = _begun(tmp_path, "run")
    path = job.folder.path / KEY
    assert path.stat().st_mode & 0o777 == 0o600
    holders = [file.name for file in job.folder.path.iterdir() if job.key.encode() in file.read_bytes()]
    assert holders == [KEY]
    chunks = list(Planner(job).chunks())
    assert list(Planner(Job.load(RunFolder(job.folder.path))).chunks()) == chunks


@pytest.mark.parametrize("content", [None, b"", b"x" * 64, b"0" * 63, b"\xff" * 64, b"0" * 10_000])
def test_without_its_key_a_run_is_not_resumed(tmp_path: Path, content: bytes | None) -> None:
    """Gone or damaged: the file and what to do are named, nothing is computed under another one."""
    path = _begun(tmp_path, "run").folder.path / KEY
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(WireError, match=r"chunks\.key is damaged: .*; put it back .*or start the run anew"):
        resume(RunFolder(path.parent), INLINE, QUIET)
    assert not list(path.parent.glob("parts*"))


def test_another_user_learns_who_can_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses to open the key: no advice to start anew, since nothing is damaged."""
    folder = _begun(tmp_path, "run").folder

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(keys, "open_unlinked", refused)
    with pytest.raises(
        WireError, match=r"chunks\.key cannot be read: Permission denied; only the user who began the run"
    ):
        Job.load(RunFolder(folder.path))


def test_bytes_that_changed_are_found_under_a_key_only_the_run_has(tmp_path: Path) -> None:
    """An input edited in place, with its length and its time as they were."""
    job = _begun(tmp_path, "run")
    chunks = list(Planner(job).chunks())
    path = tmp_path / "rows.csv"
    data = bytearray(path.read_bytes())
    data[chunks[0].start + 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputChanged, match="an input changed while the run was reading it"):
        read(job, chunks[0])
    assert read(job, chunks[1])


def test_who_takes_over_from_another_folder_has_its_key(stage: Stage) -> None:
    """One --once key in two folders: the second goes on under the ledger's key, and has it when it is resumed."""
    one, two = (stage.job(name, chunk_size=10, once="k") for name in ("one", "two"))
    assert one.key != two.key
    first = stage.driver(one, "host-a 11 aa")
    with pytest.raises(StopDriving):
        first.drive(killed_at(2))
    first.ledger.release(one.run)
    report = stage.driver(two, "host-b 22 bb").drive()
    assert two.key == one.key == read_key(two.folder) == Job.load(two.folder).key
    assert report == stage.inline("calm", chunk_size=10)


def test_a_plan_under_another_key_gives_way_to_that_in_the_ledger(stage: Stage) -> None:
    """A server that lost all, and another folder that began the run there anew: this one ends with the same report."""
    one, two = (stage.job(name, chunk_size=10, once="k") for name in ("one", "two"))
    two.manifest.extend(list(Planner(two).chunks())[:2])
    first = stage.driver(one, "host-a 11 aa")
    with pytest.raises(StopDriving):
        first.drive(killed_at(2))
    first.ledger.release(one.run)
    before = {key: stage.server.client.dump(key) for key in stage.server.client.keys("evalq:run:*")}
    second = stage.driver(two, "host-b 22 bb")
    with pytest.raises(Replanned):
        second.drive()
    assert {key: stage.server.client.dump(key) for key in stage.server.client.keys("evalq:run:*")} == before
    assert stage.driver(Job.load(two.folder), "host-b 22 bb").drive() == stage.inline("calm", chunk_size=10)


@pytest.mark.parametrize("size", [10, 20], ids=["while it plans", "behind its plan"])
def test_answers_under_another_key_are_no_other_answers(stage: Stage, size: int) -> None:
    """The server loses all while a driver stands still, and another folder begins the run: it learns who drives."""
    one, two = (stage.job(name, chunk_size=size, once="k") for name in ("one", "two"))
    first, second = stage.driver(one, "host-a 11 aa"), stage.driver(two, "host-b 22 bb")

    def begun_anew(look: int) -> None:
        if look == 2:
            stage.server.client.flushall()
            with pytest.raises(StopDriving):
                second.drive(lambda _: _stop_behind(first.collector.next + 1, second))

    with pytest.raises(AlreadyRunning, match="host-b 22 bb"):
        first.drive(begun_anew)
    assert 0 < first.collector.next < second.collector.next
    assert second.drive() == stage.inline("calm", chunk_size=size)


def _stop_behind(chunk: int, run: Run) -> None:
    if run.collector.next > chunk:
        raise StopDriving


def test_a_command_goes_on_by_the_plan_that_gave_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first try finds another folder's run in the ledger, the second has its key; it need not be given again."""
    job, other = _begun(tmp_path, "run"), new_key()
    keys_seen: list[str] = []
    real = execute.carry_out_here

    def first_at_a_ledger(job: Job, *more: Any) -> Any:
        keys_seen.append(job.key)
        if len(keys_seen) == 1:
            job.manifest.extend(list(Planner(job).chunks())[:1])
            job.adopt(other)
        return real(job, *more)

    monkeypatch.setattr(execute, "carry_out_here", first_at_a_ledger)
    before = job.key
    carry_out(job, INLINE, QUIET)
    assert keys_seen == [before, other]
    calm = _begun(tmp_path, "calm")
    carry_out(calm, INLINE, QUIET)
    assert (job.folder.path / "records.jsonl").read_bytes() == (calm.folder.path / "records.jsonl").read_bytes()


def test_a_detached_run_whose_key_is_lost_says_so(stage: Stage) -> None:
    """Nobody has its folder at hand, so no worker can check a chunk: it ends with a reason, and can be resumed."""
    job = stage.job("one", chunk_size=10)
    first = stage.driver(job, "host-a 11 aa")
    stage.launch(first)
    first.driver.detach()
    stage.server.client.delete(stage.key(job.run, "key"))
    assert stage.worker.evaluate(job.run, 0, 1) == "gone"
    broker = Broker(stage.settings)
    assert Reconciler(stage.ledger, broker).tend_all() == []
    broker.close()
    progress = stage.ledger.poll(job.run).progress
    assert (progress.state, progress.reason) == ("failed", "the server lost the key of its chunks: resume it")
    again: Report = stage.driver(Job.load(job.folder), "host-b 22 bb").drive()
    assert again == stage.inline("calm", chunk_size=10)


def test_a_key_in_the_ledger_that_evalq_did_not_write_ends_the_run(stage: Stage) -> None:
    """It is reported, not shown, and no chunk is computed by it."""
    job = stage.job("one", chunk_size=10)
    stage.ledger.open(job.header, 1, key=job.key)
    stage.ledger.append(job.run, list(Planner(job).chunks()), 0)
    stage.server.client.hset(stage.key(job.run, "key"), "key", b"made-up")
    assert stage.worker.evaluate(job.run, 0, 1) == "failed"
    progress = stage.ledger.poll(job.run).progress
    assert (progress.state, progress.reason) == ("failed", "a run's key is not what evalq writes")


def test_another_key_is_adopted_with_nothing_that_was_planned_under_the_old_one(tmp_path: Path) -> None:
    """Before its first chunk a run takes it, for good; behind that its plan and answers go; no key is refused."""
    job, key = _begun(tmp_path, "run"), new_key()
    with pytest.raises(WireError, match="not what evalq writes"):
        job.adopt("made-up")
    job.adopt(key)
    assert (job.key, read_key(job.folder)) == (key, key)
    job.manifest.extend(list(Planner(job).chunks())[:1])
    (job.folder.path / JOURNAL).write_bytes(b"answers")
    with pytest.raises(WireError, match="not what evalq writes"):
        job.adopt("made-up")
    assert Job.load(job.folder).manifest.chunks
    with pytest.raises(Replanned, match="another folder has begun the run anew"):
        job.adopt(other := new_key())
    again = Job.load(job.folder)
    assert (again.key, again.header, list(again.manifest.chunks)) == (other, job.header, [])
    assert not (job.folder.path / JOURNAL).exists()


@pytest.mark.parametrize("own", [HEAD, KEPT, "retry"])
def test_what_another_folder_does_not_have_stays_under_its_key(stage: Stage, own: str) -> None:
    """The outputs of a sweep, and what a retry kept: the run in the ledger goes, but not while somebody drives it."""
    one, two = (stage.job(name, chunk_size=10, once="k") for name in ("one", "two"))
    two.manifest.extend(list(Planner(two).chunks())[:2])
    if own == "retry":
        two.folder.note(retry={})
    else:
        (two.folder.path / own).write_bytes(b"")
    first, second = stage.driver(one, "host-a 11 aa"), stage.driver(two, "host-b 22 bb")
    with pytest.raises(StopDriving):
        first.drive(killed_at(2))
    before = {key: stage.server.client.dump(key) for key in stage.server.client.keys("evalq:run:*")}
    with pytest.raises(AlreadyRunning):
        second.ledger.open(two.header, 1, key=two.key, stays=True)
    assert {key: stage.server.client.dump(key) for key in stage.server.client.keys("evalq:run:*")} == before
    first.ledger.release(one.run)
    assert second.driver.acquire()
    look = stage.ledger.poll(two.run)
    assert (look.progress.chunks, look.progress.committed, look.progress.sealed) == (2, 0, False)
    assert stage.server.client.hget(stage.key(two.run, "key"), "key").decode() == two.key == read_key(two.folder)
    assert look.progress.epoch > 1, "what workers have of the other one is void"
    assert second.drive() == stage.inline("calm", chunk_size=10)


def test_outputs_that_workers_planned_are_planned_by_their_key(stage: Stage) -> None:
    """A sweep without a plan yet: of the same bytes, the ledger's run is the one to go on with; of others, it goes."""
    one, two, three = (stage.job(name, chunk_size=10, once="k") for name in ("one", "two", "three"))
    first = stage.driver(one, "host-a 11 aa")
    first.drive()
    first.ledger.release(one.run)
    for job in (two, three):
        (job.folder.path / HEAD).write_bytes(b"")
    stage.driver(two, "host-b 22 bb").driver.acquire()
    assert two.key == one.key
    RunLedger(stage.server.client, stage.settings, "host-b 22 bb").release(two.run)
    rows = (stage.folder / "rows.csv").read_bytes()
    (stage.folder / "rows.csv").write_bytes(rows + rows.splitlines(keepends=True)[-1])
    own = three.key
    stage.driver(three, "host-c 33 cc").driver.acquire()
    assert three.key == own == read_key(three.folder)
    assert stage.ledger.poll(three.run).progress.chunks == 0


def test_a_plan_that_another_folder_has_further_is_planned_once(stage: Stage) -> None:
    """Each step of it began the run again, under a new epoch, which voided what workers were at."""
    one, two = (stage.job(name, chunk_size=5, once="k") for name in ("one", "two"))
    first = stage.driver(one, "host-a 11 aa")
    stage.launch(first)
    first.ledger.release(one.run)
    second = stage.driver(two, "host-b 22 bb")
    stage.launch(second)
    assert list(two.manifest.chunks) == list(one.manifest.chunks)
    assert len(two.manifest.chunks) > 4 * PLAN_STEP
    assert stage.ledger.poll(two.run).progress.epoch == 2


def test_a_key_that_cannot_be_read_is_reported_by_what_is_there(tmp_path: Path) -> None:
    """A file that is gone, and a link where the file was, also one that leads to the key."""
    job = _begun(tmp_path, "run")
    path = job.folder.path / KEY
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(WireError, match=r"chunks\.key is damaged: No such file or directory; put it back"):
        read_key(job.folder)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WireError, match=r"chunks\.key is damaged: it is a symbolic link; put it back"):
        read_key(job.folder)
