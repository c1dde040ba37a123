"""What a run is makes its id; under one id, what is there and what is sent must be the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.errors import ConfigError, Divergent
from evalq.evalcore.model.manifest import Seal
from evalq.producer.folder import job as job_module
from evalq.producer.run.chunks import Planner, evaluate, read
from tests.integration.harness import Server
from tests.unit.producer.stage import Stage


@pytest.fixture
def stage(server: Server, tmp_path: Path) -> Stage:
    """A stage on an empty server."""
    server.client.flushall()
    return Stage(server, tmp_path)


@dataclass(frozen=True)
class Other:
    """What differs from a run of chunks of 10."""

    asked: dict[str, Any]
    same: bool


OTHERS = {
    "nothing": Other({}, True),
    "priority": Other({"priority": "interactive"}, True),
    "chunk size": Other({"chunk_size": 7}, False),
    "limit": Other({"limit": 50}, False),
    "suite": Other({"suite": "another"}, False),
    "key": Other({"once": "k2"}, False),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_a_run_is_makes_its_id(stage: Stage, what: str) -> None:
    """Key, plan and suite do; how urgent it is does not."""
    other = OTHERS[what]
    common = {"chunk_size": 10, "once": "k"}
    one, two = stage.job("one", **common), stage.job("two", **{**common, **other.asked})
    assert (one.run == two.run) == other.same


def test_the_code_makes_its_id(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command after an upgrade is another run: answers of two codes never meet."""
    one = stage.job("one", once="k")
    monkeypatch.setattr(job_module, "code_version", lambda: "0" * 12)
    two = stage.job("two", once="k")
    assert one.run != two.run
    assert two.header.code_version == "0" * 12


def test_one_key_with_two_plans_gives_two_whole_reports(stage: Stage) -> None:
    """The same --once with chunks of 10 and of 37 from two folders, interleaved: each equals its own inline report."""
    ten = stage.driver(stage.job("ten", chunk_size=10, once="k"), "a 1 a")
    other = stage.driver(stage.job("other", chunk_size=37, once="k"), "b 2 b")
    reports = []

    def meanwhile(look: int) -> None:
        if look == 3:
            reports.append(other.drive())

    reports.append(ten.drive(meanwhile))
    assert reports == [stage.inline("inline-37", chunk_size=37), stage.inline("inline-10", chunk_size=10)]
    assert reports[0]["records"]["total"] == reports[1]["records"]["total"] > 100


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("chunk_size", 37, "chunk size is 37 there and 10 here"),
        ("code_version", "0" * 12, "code version is 000000000000 there"),
        ("params", {"pass_mark": 4}, r"params\.pass_mark is 4 there and 3 here\. "),
        ("suite", "other", "suite is other there and default here"),
    ],
)
def test_another_header_under_one_id_is_refused_with_what_differs(
    stage: Stage, field: str, value: Any, said: str
) -> None:
    """The producer ends with a sentence; nothing in the ledger changes."""
    job = stage.job("one", chunk_size=10)
    if isinstance(value, dict):
        value = job.header.params | value
    stage.ledger.open(msgspec.structs.replace(job.header, **{field: value}), 1, key=job.key)
    before = stage.server.client.hgetall(stage.key(job.run, "meta"))
    with pytest.raises(ConfigError, match=said):
        stage.driver(job, "a 1 a").drive()
    assert stage.server.client.hgetall(stage.key(job.run, "meta")) == before


def test_another_plan_under_one_id_is_refused_with_what_differs(stage: Stage) -> None:
    """Chunks and seal that are there are compared with those sent; a plan that continues beyond its end is another."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "a 1 a")
    run.drive()
    chunks, seal = job.manifest.chunks, job.manifest.seal
    assert seal is not None
    entries = stage.server.client.lrange(stage.key(job.run, "chunks"), 0, -1)
    changed = [*chunks[:5], msgspec.structs.replace(chunks[5], records=9), *chunks[6:]]
    with pytest.raises(ConfigError, match="chunk 5: records is 10 there and 9 here"):
        run.ledger.append(job.run, changed, 0, seal)
    with pytest.raises(ConfigError, match=r"the end of its plan: sha256\.0 is"):
        run.ledger.append(job.run, chunks, 0, Seal(seal.chunks, ("another",)))
    more = msgspec.structs.replace(chunks[0], seq=seal.chunks)
    with pytest.raises(ConfigError, match=f"ends after {seal.chunks} chunks there, and goes on to {seal.chunks + 1}"):
        run.ledger.append(job.run, [more], seal.chunks)
    assert run.ledger.append(job.run, chunks, 0, seal) == seal.chunks
    assert stage.server.client.lrange(stage.key(job.run, "chunks"), 0, -1) == entries


def test_where_a_run_lies_makes_it_no_other(stage: Stage) -> None:
    """The same run begun where its input has another path, and more urgently: what is there stays."""
    job = stage.job("one", chunk_size=10)
    inputs = tuple(msgspec.structs.replace(planned, path="elsewhere/rows.csv") for planned in job.header.inputs)
    there = msgspec.structs.replace(job.header, inputs=inputs)
    stage.ledger.open(there, 1, key=job.key)
    assert stage.ledger.open(msgspec.structs.replace(job.header, priority="interactive"), 2, key=job.key) == 2
    assert stage.ledger.header(job.run) == there


@pytest.mark.parametrize("changed", ["records", "digest", "start"])
def test_an_answer_is_of_its_chunk_or_refused(stage: Stage, changed: str) -> None:
    """An answer that another plan's chunk got, with right digest and well-formed, is in no report: it is computed here,
    found to differ, and the run ends saying so.
    """
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "a 1 a")

    def meanwhile(look: int) -> None:
        chunk = job.manifest.chunks[0]
        if look == 1:
            value: Any = {"records": 9, "digest": "0" * 64, "start": chunk.start + 1}[changed]
            of = msgspec.structs.replace(chunk, **{changed: value})
            wrong = evaluate(job, of, read(job, chunk))
            assert stage.ledger.commit(job.header, chunk, run.work.ownership.epoch, wrong) == "committed"

    with pytest.raises(Divergent, match="chunk 0 has another answer here"):
        run.drive(meanwhile)


def test_a_worker_leaves_runs_of_other_code_alone(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A message that reached the wrong worker computes nothing and commits nothing, and is reported in a line."""
    job = stage.job("one", chunk_size=10)
    run = stage.driver(job, "a 1 a")
    other = msgspec.structs.replace(job.header, code_version="0" * 12)
    run.ledger.open(other, 1, key=job.key)
    chunks = list(Planner(job).chunks())
    run.ledger.append(job.run, chunks, 0)
    assert stage.worker.evaluate(job.run, 0, 1) == "other"
    assert "it is for code 000000000000" in caplog.text
    assert stage.server.client.hlen(stage.key(job.run, "leases")) == 0
    answer = evaluate(job, chunks[0], read(job, chunks[0]))
    assert stage.ledger.commit(job.header, chunks[0], 1, answer) == "other"
    assert stage.ledger.poll(job.run).progress.committed == 0
