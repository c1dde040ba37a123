"""A log that grows in any pieces, is rotated in any way and followed by any processes has the report of the whole."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalq.evalcore.evaluators.cooperation import evaluator
from evalq.evalcore.evaluators.cooperation.evaluator import Cooperation
from evalq.evalcore.evaluators.cooperation.resort import SortLimits
from evalq.evalcore.files import write_atomic
from evalq.producer.follow import follower as follower_module
from evalq.producer.follow import log_files
from evalq.producer.follow.follower import Follower
from evalq.producer.follow.log_files import rotated_later
from tests.portions import some
from tests.unit.cooperation.logs import as_jsonl, rows
from tests.unit.cooperation.test_resort import shuffled_log
from tests.unit.follow.stage import Stage

STEPS = ["append", "append", "append", "look", "look", "forget", "rotate", "replace"]


def numbered(log: list[dict[str, Any]]) -> bytes:
    """The log's lines, no two of them alike, as those of a real log with its clock are."""
    return as_jsonl([{**row, "at": n} for n, row in enumerate(log)])


def play(stage: Stage, data: bytes, steps: list[tuple[str, int]]) -> None:
    """Write ``data`` in pieces of any bytes, with ``steps`` between them; every look must find the whole's report."""
    for step, size in steps:
        if step == "append":
            stage.append(data[len(stage.whole) : len(stage.whole) + size])
        elif step == "forget":
            stage.forget()
        elif step == "look":
            stage.look()
            stage.agrees()
        elif stage.known and step == "replace":
            stage.look()
            stage.replace()
            stage.look()
        elif stage.begun:
            stage.rotate()
    stage.append(data[len(stage.whole) :])
    stage.look()
    stage.agrees()


@settings(deadline=None, max_examples=70)
@given(
    log=rows(),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 400)), max_size=25),
    bad=st.booleans(),
)
def test_any_growth_rotation_and_restart_gives_the_report_of_the_whole(
    log: list[dict[str, Any]], steps: list[tuple[str, int]], bad: bool
) -> None:
    """Pieces end in the middle of lines and of characters; logs are in order or not; with skipped lines or none."""
    data = numbered(log)
    if bad:
        data = b"\xef\xbb\xbf" + data.replace(b"\n", b"\nnot an event\n\n", 2)
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder), {"skip_bad_lines": bad}).entered() as stage:
        play(stage, data, steps)


@settings(deadline=None, max_examples=40)
@example(seed=510510, how="number", again=False)  # the first look finds half a line, with which every file begins
@given(seed=st.integers(0, 1 << 30), how=st.sampled_from(["number", "date"]), again=st.booleans())
def test_several_rotations_between_two_looks_are_read_in_their_order(seed: int, how: str, again: bool) -> None:
    """A follower that slept, or was not there, finds where it was and every file that came behind."""
    rng = random.Random(seed)
    data = numbered(shuffled_log(40, seed) if seed % 2 else sorted(shuffled_log(40, seed), key=lambda r: r["turn"]))
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)).entered() as stage:
        stage.append(data[: rng.randrange(1, 900)])
        stage.look()
        if again:
            stage.forget()
        for _ in range(rng.randrange(1, 5)):
            stage.append(data[len(stage.whole) :][: rng.randrange(1, 900)])
            {"number": stage.rotate, "date": stage.rotate_by_date}[how]()
        stage.append(data[len(stage.whole) :])
        stage.look()
        stage.agrees()


@pytest.mark.parametrize("seed", some(range(20), of=3))
def test_a_kill_at_any_write_loses_and_doubles_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends at some write of some pass, before or behind it; the next goes on to the same bytes."""
    rng = random.Random(seed)
    monkeypatch.setattr(follower_module, "BLOCK_BYTES", 256)
    monkeypatch.setattr(follower_module, "KEEP_BLOCKS", 2)
    left = rng.randrange(1, 12)
    real = write_atomic

    def write(path: Path, content: bytes) -> None:
        nonlocal left
        left -= 1
        if left == 0 and rng.random() < 0.5:
            raise KilledError
        real(path, content)
        if left <= 0:
            left = rng.randrange(1, 12)
            raise KilledError

    for module in ("evalq.producer.follow.checkpoint", "evalq.producer.folder.run_folder"):
        monkeypatch.setattr(f"{module}.write_atomic", write)
    data = numbered(shuffled_log(60, seed))
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)).entered() as stage:
        left = 1 << 30
        stage.look()
        left = rng.randrange(1, 12)
        deaths = 0
        while len(stage.whole) < len(data) or not stage.out.exists():
            stage.append(data[len(stage.whole) :][: rng.randrange(1, 700)])
            try:
                stage.look()
            except KilledError:
                deaths += 1
                stage.forget()
                continue
            stage.agrees()
        monkeypatch.undo()
        stage.look()
        stage.agrees()
        assert deaths


class KilledError(Exception):
    """Stands for SIGKILL: nothing of the process is used after it."""


def test_a_rotation_in_the_middle_of_a_look_leaves_no_file_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names move on between finding the next file's name and opening it: it is another file by then."""
    data = numbered(sorted(shuffled_log(300), key=lambda row: row["turn"]))
    real = rotated_later
    moves = 0

    def then_move(log: Path, path: Path) -> Path | None:
        nonlocal moves
        found = real(log, path)
        if moves < 3:
            moves += 1
            stage.rotate()
            stage.append(data[len(stage.whole) :][:2_000])
        return found

    monkeypatch.setattr(log_files, "rotated_later", then_move)
    with Stage(tmp_path).entered() as stage:
        stage.append(data[:2_000])
        stage.look()
        stage.rotate()
        stage.append(data[2_000:4_000])
        for _ in range(4):
            stage.look()  # each is up to where the names moved
        stage.agrees()
    assert moves == 3


def test_a_replaced_log_is_read_on_in_where_its_old_number_is_another_files(tmp_path: Path) -> None:
    """As rsync leaves a folder of logs: the file that the first one was is gone, and the next one got its inode."""
    data = numbered(sorted(shuffled_log(60), key=lambda row: row["turn"]))
    with Stage(tmp_path).entered() as stage:
        stage.append(data[:1_000])
        stage.look()
        stage.forget()
        held = stage.log.with_name("other.jsonl")
        os.link(stage.log, held)
        stage.replace()
        held.write_bytes(data[500:])
        stage.append(data[1_000:])
        stage.look()
        stage.agrees()


def test_an_old_file_is_read_until_the_new_one_has_something(tmp_path: Path) -> None:
    """A writer that still holds the old file when the empty new one is there already, as before logrotate's signal."""
    data = numbered(sorted(shuffled_log(60), key=lambda row: row["turn"]))
    with Stage(tmp_path).entered() as stage:
        stage.append(data[:1_000])
        stage.look()
        with stage.log.open("ab", buffering=0) as held:
            stage.rotate()
            for start in (1_000, 2_000):
                stage.look()
                held.write(data[start : start + 1_000])
                stage.whole += data[start : start + 1_000]
                stage.look()
                stage.agrees()
        stage.append(data[3_000:])
        stage.look()
        stage.agrees()


def test_only_the_first_bytes_of_all_are_a_byte_order_mark(tmp_path: Path) -> None:
    """At the beginning of a later file it makes a bad line, as it does in the middle of the whole."""
    with Stage(tmp_path, {"skip_bad_lines": True}).entered() as stage:
        for agent in ("a", "b"):
            stage.append(b"\xef\xbb\xbf" + as_jsonl([{"turn": n, "agent": agent} for n in range(3)]))
            stage.look()
            stage.agrees()
            stage.rotate()
        report = stage.look().report
        assert report is not None
        (entry,) = report["results"]["logs"].values()
        assert entry["message_counts"] == {"a": 3, "b": 2}


def test_only_new_bytes_are_read(tmp_path: Path) -> None:
    """A look reads what was appended, to the byte, in this process and in the next; nothing a second time."""
    data = numbered(sorted(shuffled_log(2_000), key=lambda row: (row["turn"], row["agent"])))
    with Stage(tmp_path).entered() as stage:
        stage.append(data[:100_000])
        first = stage.look()
        assert (first.read, first.position + first.waiting) == (100_000, 100_000)
        for size in (1, 70, 5_000):
            stage.append(data[len(stage.whole) :][:size])
            assert (stage.look().read, stage.look().read) == (size, 0)
            stage.append(data[len(stage.whole) :][:size])
            stage.forget()
            found = stage.look()
            assert (found.read, found.again) == (size, 0)
        stage.agrees()


def test_a_log_out_of_order_is_read_again_for_its_sort_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report is exact, over rotations too; what that costs is reported with the pass."""
    monkeypatch.setattr(evaluator, "whole", Cooperation(SortLimits(run_rows=50, fan_in=3, block_bytes=500)).whole)
    data = numbered(shuffled_log(300))
    with Stage(tmp_path).entered() as stage:
        stage.append(data[:9_000])
        assert stage.look().again >= stage.look().position
        stage.rotate()
        stage.append(data[9_000:])
        found = stage.look()
        stage.agrees()
        assert found.again >= found.position > 9_000
        assert stage.look().again == 0, "nothing new, nothing sorted"
        stage.forget()
        assert stage.look().again == 0, "not by the next process either"
        stage.agrees()


@pytest.mark.parametrize("how", ["rotate", "rotate_by_date"])
def test_a_rotation_while_all_is_read_again_for_a_sort_is_gone_along_with(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a long log that takes minutes: its files have other names when their turn comes."""
    data = numbered(shuffled_log(60, 3))
    first, second = data.index(b"\n", 1_500) + 1, data.index(b"\n", 3_000) + 1
    with Stage(tmp_path).entered() as stage:
        for start, end in ((0, first), (first, second), (second, None)):
            if start:
                stage.look()
                stage.rotate()
            stage.append(data[start:end])
        reopen = Follower.reopen

        def rotated(self: Follower) -> Any:
            stream = reopen(self)
            assert stream.read(1)
            getattr(stage, how)()
            stream.seek(0)
            return stream

        monkeypatch.setattr(Follower, "reopen", rotated)
        assert stage.look().again >= len(data)
        monkeypatch.undo()
        stage.agrees()


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """Nothing is reported and nothing fails until there is an event."""
    with Stage(tmp_path).entered() as stage:
        assert stage.look().report is None
        assert not stage.run().found
        stage.append(b"")
        assert stage.look().report is None
        assert stage.run().found
        stage.append(b"\n \n")
        assert stage.look().report is None
        assert not stage.run().folder.reported
        stage.append(json.dumps({"turn": 1, "agent": "a"}).encode())
        assert stage.look().report is None, "the line has no end yet"
        stage.append(b"\n")
        assert stage.look().report is not None
        stage.agrees()
