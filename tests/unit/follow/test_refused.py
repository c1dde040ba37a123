"""What a follower cannot answer for is an error that says where and what to do, never another number."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, InputChanged, InputError, UsageError, WireError
from evalq.evalcore.evaluators.cooperation import evaluator
from evalq.producer.folder.job import Job
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.follow import follower as follower_module
from evalq.producer.follow import run as run_module
from evalq.producer.follow.checkpoint import CHECKPOINT, MOST_MARKS, Checkpoint
from evalq.producer.follow.run import begin_following
from tests.folders import facts
from tests.unit.follow.stage import LOG, Stage

LINE = 60


def lines(first: int, count: int) -> bytes:
    """Events of LINE bytes each, no two alike."""
    rows = (json.dumps({"turn": n, "agent": "a", "at": n}) for n in range(first, first + count))
    return b"".join(row.encode().ljust(LINE - 1) + b"\n" for row in rows)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A log of 100 lines that was read, and which nobody rotates meanwhile."""
    with Stage(tmp_path, settling=()).entered() as stage:
        stage.append(lines(0, 100))
        stage.look()
        yield stage


def refused(stage: Stage, *said: str) -> None:
    """Assert that the next look of this process, and of a new one, says all of ``said`` and leaves the report."""
    before = (stage.out / "report.json").read_bytes()
    for _ in range(2):
        with pytest.raises(InputChanged) as caught:
            stage.look()
        for words in said:
            assert words in str(caught.value)
        stage.forget()
    assert (stage.out / "report.json").read_bytes() == before


def overwrite(path: Path, line: int) -> None:
    """Change a byte of a line (1-based), in place."""
    with path.open("r+b") as out:
        out.seek((line - 1) * LINE + 8)
        out.write(b"7")


@pytest.mark.parametrize("line", [2, 17, 84, 100])
def test_a_change_in_the_first_or_last_kilobyte_is_named_by_its_line(stage: Stage, line: int) -> None:
    """The beginning, and what stands before the position, are looked at in every pass."""
    overwrite(stage.log, line)
    refused(stage, f"{LOG}:{line}: byte {(line - 1) * LINE + 8:,}", "begin anew in another --run-dir")


def test_a_change_elsewhere_is_found_by_verify_between_its_marks(stage: Stage) -> None:
    """Passes ended at lines 100, 110 and 120: a change in line 105 is reported as in 101 to 110."""
    for first in (100, 110):
        stage.append(lines(first, 10))
        stage.look()
    stage.append(lines(120, 30))
    stage.look()
    stage.run().verify()
    overwrite(stage.log, 105)
    stage.look()
    with pytest.raises(InputChanged, match=rf"{LOG}:101: .*lines 101 to 110"):
        stage.run().verify()


def test_marks_stay_few_and_reach_from_the_beginning_to_the_end(stage: Stage) -> None:
    """Whatever the number of passes."""
    for first in range(100, 100 + 2 * MOST_MARKS):
        stage.append(lines(first, 1))
        stage.look()
    kept = Checkpoint.load(stage.out)
    assert kept is not None
    assert MOST_MARKS / 2 <= len(kept.marks) <= MOST_MARKS
    assert kept.marks == sorted(kept.marks, key=lambda mark: mark.position)
    assert kept.marks[-1].line == 101 + 2 * MOST_MARKS
    assert kept.marks[0].line < 150
    stage.run().verify()


def test_an_emptied_log_without_a_copy_is_refused(stage: Stage) -> None:
    """Lines may have come before it was emptied; nobody knows."""
    os.truncate(stage.log, 0)
    refused(stage, "the log was emptied", f"{LOG}:101", "cut to 0 bytes, where 6,000 were read", "copytruncate")


def test_an_emptied_log_that_has_grown_again_is_not_taken_for_the_old_one(stage: Stage) -> None:
    """Though it is longer than what was read."""
    os.truncate(stage.log, 0)
    stage.append(lines(500, 200))
    refused(stage, f"{LOG}:1", "is not the one that was read")


def test_a_log_that_vanished_while_nobody_followed_is_refused(stage: Stage) -> None:
    """Another log stands in its place, and it is nowhere."""
    stage.forget()
    stage.log.rename(stage.log.with_name("held"))  # keeps the inode in use
    stage.log.with_name("held").rename(stage.out / "held")
    stage.append(lines(100, 5))
    refused(stage, "the log was replaced", "is in no file beside the log")


def test_a_log_that_vanished_while_it_was_followed_is_finished_first(stage: Stage) -> None:
    """The follower holds the file: what was written before it was removed is read."""
    stage.append(lines(100, 5))
    stage.log.unlink()
    stage.look()
    stage.append(lines(105, 5))
    stage.look()
    stage.agrees()


def test_a_file_rotated_away_behind_a_removed_one_is_not_passed_over(stage: Stage) -> None:
    """Rotated twice since the last pass, and one old file is kept: what was read is gone, what came next is in it."""
    stage.append(lines(100, 10))
    stage.log.rename(stage.rotated(1))
    stage.append(lines(110, 10))
    os.utime(stage.rotated(1), ns=(0, stage.log.stat().st_mtime_ns - 1))  # the clock of files may be slow to move on
    stage.log.replace(stage.rotated(1))
    stage.append(lines(120, 10))
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: rotated away after the file that was read last, which is"):
        stage.look()


def test_what_was_rotated_away_before_it_was_followed_is_left_alone(stage: Stage) -> None:
    """A removed log is finished, and the new one begun, whatever stands beside it from before."""
    stage.rotated(1).write_bytes(lines(900, 5))
    os.utime(stage.rotated(1), ns=(0, stage.log.stat().st_mtime_ns - 1))
    stage.append(lines(100, 5))
    stage.log.unlink()
    stage.append(lines(105, 5))
    stage.look()
    stage.agrees()


def test_a_file_packed_before_it_was_read_is_refused_by_name(stage: Stage) -> None:
    """Rotated twice since the last pass, and the second file is a .gz already."""
    stage.forget()
    stage.rotate()
    stage.append(lines(100, 10))
    stage.rotate()
    packed = stage.rotated(1)
    packed.with_suffix(".1.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    stage.append(lines(110, 10))
    refused(stage, f"{LOG}.1", "packed or removed before it was read", "delaycompress")


def test_a_dated_file_packed_before_it_was_read_is_refused_by_name(stage: Stage) -> None:
    """The same where rotation names files by date."""
    stage.forget()
    stage.rotate_by_date()
    stage.append(lines(100, 10))
    stage.log.rename(stage.log.with_name(LOG + "-20260201.gz"))
    stage.append(lines(110, 10))
    refused(stage, f"{LOG}-20260201.gz", "packed or removed")


def test_a_log_that_needs_a_sort_after_a_part_is_gone_is_refused(stage: Stage) -> None:
    """In order it can do without the old file; out of order it cannot."""
    stage.rotate()
    stage.append(lines(100, 10))
    stage.look()
    stage.rotated(1).unlink()
    stage.append(lines(110, 1))
    stage.look()
    stage.agrees()
    stage.append(lines(5, 1))
    with pytest.raises(InputChanged, match=rf"{LOG}:1: .*is gone, and all of the log must be read again"):
        stage.look()


def test_lines_written_to_a_file_after_the_next_was_begun_are_found_by_verify(stage: Stage) -> None:
    """More than one writer: such lines are in no report, so verify refuses."""
    stage.rotate()
    stage.append(lines(100, 1))
    stage.look()
    with stage.rotated(1).open("ab") as late:
        late.write(lines(101, 1))
    with pytest.raises(InputChanged, match=r"events\.jsonl\.1 grew after the next was begun"):
        stage.run().verify()


def test_bad_lines_are_the_whole_logs_error_and_are_not_gone_beyond(stage: Stage) -> None:
    """The same words as of the whole, again and again, and the report that there was stays."""
    before = (stage.out / "report.json").read_bytes()
    stage.append(lines(100, 3) + b"{\n" + lines(103, 3) + b"[]\n")
    with pytest.raises(InputError) as whole:
        stage.expected()
    for _ in range(2):
        with pytest.raises(InputError) as found:
            stage.look()
        assert str(found.value) == str(whole.value)
        stage.forget()
    assert (stage.out / "report.json").read_bytes() == before


def test_a_bad_line_that_is_mended_is_gone_on_from(stage: Stage) -> None:
    """Nothing of a look that failed is kept, so that what stands in the log now is what counts."""
    stage.append(lines(100, 3))
    stage.look()
    good = bytes(stage.whole)
    stage.append(lines(103, 3) + b"{}\n")
    with pytest.raises(InputError, match="turn is missing"):
        stage.look()
    stage.forget()
    os.truncate(stage.log, len(good))
    stage.whole[:] = good
    stage.append(lines(106, 3))
    stage.look()
    stage.agrees()


def test_a_line_without_end_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded: what no run would cut is not waited for."""
    monkeypatch.setattr(follower_module, "MAX_RECORD_BYTES", 1 << 20)
    stage.append(b"x" * ((1 << 20) + 1))
    with pytest.raises(InputError, match=f"{LOG}:101: a record longer than 1 MiB"):
        stage.look()


@pytest.mark.parametrize("change", ["byte", "cut", "empty"])
def test_a_damaged_checkpoint_is_reported_by_name(stage: Stage, change: str) -> None:
    """Its digest holds every byte of it."""
    path = stage.out / CHECKPOINT
    data = path.read_bytes()
    path.write_bytes({"byte": data.replace(b'"line":101', b'"line":102'), "cut": data[:-9], "empty": b""}[change])
    stage.forget()
    with pytest.raises(WireError, match=r"follow\.checkpoint is damaged: .*begin anew"):
        stage.look()


def test_a_state_of_other_code_is_not_gone_on_with(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is read from its beginning while it is all there; after a rotation that is refused."""
    stage.forget()
    monkeypatch.setattr(run_module, "code_version", lambda: "other")
    stage.append(lines(100, 1))
    assert stage.run().begun_anew
    assert stage.look().lines == 101
    stage.agrees()
    stage.rotate()
    stage.append(lines(101, 1))
    stage.look()
    stage.forget()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="answers of different code are never mixed"):
        stage.look()


def test_a_folder_belongs_to_one_log_and_one_set_of_parameters(stage: Stage) -> None:
    """Others are refused; so is a folder of a run that follows nothing, and going on with one that does."""
    stage.forget()
    stage._params["skip_bad_lines"] = True
    with pytest.raises(UsageError, match="follows another log, or with other parameters"):
        stage.look()
    with pytest.raises(UsageError, match="resume it with the command that began it"):
        Job.load(RunFolder(stage.out))
    with RunFolder.begin(stage.out.with_name("other")) as other:
        other.note(**facts("r", "open"))
    with pytest.raises(UsageError, match="the folder is another run's"):
        begin_following(evaluator, Request([LOG], {}, {}), other.path, {})


@pytest.mark.parametrize(
    ("inputs", "said"),
    [(["a", "b"], "takes one log, not 2"), (["-"], "needs a file"), (["a.gz"], "packed"), (["."], "a folder")],
)
def test_what_does_not_grow_is_refused(inputs: list[str], said: str, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match=said):
        begin_following(evaluator, Request(inputs, {}, {}), tmp_path / "run", {})
    assert not (tmp_path / "run").exists()


def test_without_a_folder_named_the_same_command_finds_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By log and parameters: another log, or other rules, is another run."""
    monkeypatch.chdir(tmp_path)
    paths = [
        begin_following(evaluator, Request([log], params, {}), None, {})[0].path
        for log, params in [("a", {}), ("./a", {}), ("b", {}), ("a", {"skip_bad_lines": True})]
    ]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3
