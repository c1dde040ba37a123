"""Logs copied and emptied, copied by hand, replaced and removed: all lines are read once, or it is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError, InputChanged
from evalq.producer.follow import run as run_module
from evalq.producer.follow.follower import Follower
from tests.unit.cooperation.logs import as_jsonl
from tests.unit.follow.stage import LOG, Stage

FIRST = b'{"turn": 0, "agent": "begun"}\n'


def lines(first: int, count: int) -> bytes:
    """Events, no two of them alike."""
    return as_jsonl([{"turn": n, "agent": "a", "at": n} for n in range(first, first + count)])


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A log that is not there yet."""
    with Stage(tmp_path, settling=()).entered() as stage:
        yield stage


def look(stage: Stage) -> None:
    """One, which must find all."""
    stage.look()
    stage.agrees()


@pytest.mark.parametrize("left", [False, True])
def test_logs_that_begin_with_the_same_line_are_told_apart_by_their_copies(stage: Stage, left: bool) -> None:
    """As a program writes it when it starts."""
    stage.append(FIRST)
    look(stage)
    if left:
        stage.forget()
    stage.append(lines(1, 3))
    stage.copy_and_truncate()
    stage.append(FIRST + lines(4, 9))
    look(stage)


def test_a_log_that_is_emptied_and_then_renamed_is_read_from_its_copy_on(stage: Stage) -> None:
    """Both between two looks, the first of which found half a line."""
    stage.append(b'{"turn": ')
    look(stage)
    stage.append(lines(1, 9)[len(b'{"turn": ') :])
    stage.copy_and_truncate()
    stage.append(lines(10, 3))
    stage.rotate()
    stage.append(lines(13, 3))
    look(stage)


@pytest.mark.parametrize("first", [b"", b'{"turn": ', lines(1, 1)])
def test_what_somebody_copied_by_hand_is_not_read_beside_the_copy_of_rotation(stage: Stage, first: bytes) -> None:
    """It ends in the middle of a line, and the later one begins with it."""
    stage.append(first)
    look(stage)
    stage.append(lines(1, 9)[len(first) : -9])
    shutil.copyfile(stage.log, stage.rotated(1))
    stage.append(lines(1, 18)[len(lines(1, 9)) - 9 :])
    stage.copy_and_truncate()
    stage.append(lines(19, 9))
    look(stage)


def test_a_copy_of_the_same_bytes_under_a_date_is_not_preferred_to_the_numbered_one(stage: Stage) -> None:
    """Behind a number come numbers, and behind a date there would be none."""
    stage.append(lines(1, 3))
    look(stage)
    stage.append(lines(4, 3))
    shutil.copyfile(stage.log, stage.log.with_name(f"{LOG}-20260102"))
    stage.copy_and_truncate()
    stage.append(lines(7, 9))
    stage.copy_and_truncate()
    stage.append(lines(16, 9))
    look(stage)


def test_a_copy_in_an_inode_and_of_the_size_that_a_file_had_which_was_read_is_read(stage: Stage) -> None:
    """Rotation removed the older one, and the system gave its number again; lines are often of one length."""
    stage.append(lines(10, 9))
    look(stage)
    stage.copy_and_truncate()
    stage.append(lines(20, 1)[:9])
    look(stage)
    stage.append(lines(20, 9)[9:])
    shutil.copyfile(stage.log, stage.rotated(1))  # the same inode
    os.truncate(stage.log, 0)
    stage.append(lines(30, 3))
    look(stage)


@pytest.mark.parametrize("first", [b"", b'{"turn": ', FIRST])
def test_a_log_emptied_between_the_system_calls_of_a_look_is_read_from_its_copy_on(
    stage: Stage, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was seen to be what it was, and before more is read of it."""
    stage.append(first)
    look(stage)
    data = FIRST + lines(1, 9)
    stage.append(data[len(first) :])
    read = Follower._read

    def emptied(self: Follower) -> bool:
        monkeypatch.undo()
        stage.copy_and_truncate()
        stage.append(FIRST + lines(10, 20))
        return read(self)

    monkeypatch.setattr(Follower, "_read", emptied)
    look(stage)


def test_a_removed_log_is_finished_though_the_next_begins_as_it_did(stage: Stage) -> None:
    """By a follower that holds it."""
    stage.append(FIRST)
    look(stage)
    stage.append(lines(1, 3))
    stage.log.unlink()
    stage.append(FIRST + lines(4, 3))
    look(stage)


def test_a_log_replaced_before_it_was_read_is_read_once(stage: Stage) -> None:
    """It was opened while it was empty; another file has what it got since, and more."""
    stage.append(b"")
    look(stage)
    stage.append(lines(1, 3))
    stage.replace()
    stage.append(lines(4, 3))
    look(stage)


@pytest.mark.parametrize("first", [b"", b'{"turn": '])
def test_a_log_removed_while_nobody_followed_is_refused_though_nothing_tells_it_from_the_next(
    stage: Stage, first: bytes
) -> None:
    """Less than a line was read: every file begins so, and lines may have come that nobody saw."""
    stage.append(first)
    stage.look()
    stage.forget()
    stage.append(lines(1, 3)[len(first) :])
    stage.log.rename(stage.out / "held")  # keeps the inode in use
    stage.append(lines(4, 3))
    with pytest.raises(InputChanged, match="the log was replaced"):
        stage.look()


@pytest.mark.parametrize("grown", [0, 9])
def test_a_log_emptied_before_an_upgrade_is_refused(stage: Stage, grown: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be read from its beginning, which is in the copy; the file is the same."""
    stage.append(FIRST + lines(1, 3))
    look(stage)
    stage.forget()
    stage.copy_and_truncate()
    stage.append(FIRST + lines(4, grown))
    monkeypatch.setattr(run_module, "code_version", lambda: "other")
    with pytest.raises(ConfigError, match="the log was rotated since"):
        stage.look()


def test_a_file_is_not_passed_over_because_it_has_the_number_of_one_that_was_read(stage: Stage) -> None:
    """What was read last is gone; the file that came behind it got the inode of an older one."""
    stage.append(lines(1, 9))
    look(stage)
    stage.rotate()
    stage.append(lines(10, 9))
    look(stage)
    stage.log.unlink()
    stage.rotated(1).write_bytes(lines(19, 9))
    os.utime(stage.rotated(1), (2**32, 2**32))  # the clock of files may be slow to move on
    stage.log.write_bytes(lines(28, 9))
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: rotated away after the file that was read last"):
        stage.look()


def test_half_a_line_does_not_make_the_next_file_a_copy_of_the_one_that_is_gone(stage: Stage) -> None:
    """Rotation removed it with lines in it that a follower can read still, but not what came between."""
    stage.append(b'{"turn": ')
    stage.look()
    stage.append(lines(1, 9)[len(b'{"turn": ') :])
    stage.log.unlink()
    stage.rotated(1).write_bytes(lines(10, 20))
    os.utime(stage.rotated(1), (2**32, 2**32))
    stage.log.write_bytes(b"\n")
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: rotated away after the file that was read last"):
        stage.look()
