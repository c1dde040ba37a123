"""Logs replaced and removed: all lines are read once, or it is refused, as is each log that was copied and emptied."""

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


def refused(stage: Stage) -> None:
    """Assert that the next look refuses a copy and says what to do, and so does one by the next process."""
    for _ in range(2):
        with pytest.raises(InputChanged, match=r"renaming \(logrotate: without copytruncate\).*--run-dir"):
            stage.look()
        stage.forget()


@pytest.mark.parametrize("first", [b"", b'{"turn": ', FIRST, lines(1, 60)])
@pytest.mark.parametrize("then", [b"", FIRST, FIRST + lines(4, 90), lines(1, 90)])
@pytest.mark.parametrize("left", [False, True])
def test_a_log_that_was_copied_and_emptied_is_refused(stage: Stage, first: bytes, then: bytes, left: bool) -> None:
    """Also where nothing tells it from the log that was read: it begins as that did, or nothing was read of it."""
    stage.append(first)
    look(stage)
    if left:
        stage.forget()
    stage.append(lines(100, 3))
    stage.copy_and_truncate()
    stage.append(then)
    refused(stage)


def test_a_copy_beside_a_log_that_goes_on_is_refused(stage: Stage) -> None:
    """As logrotate makes it a moment before it empties the log; it goes on once a copy by hand has another name."""
    stage.append(lines(1, 3))
    look(stage)
    shutil.copyfile(stage.log, stage.rotated(1))
    stage.append(lines(4, 3))
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: it came beside .*{LOG}, .*rename the copy"):
        stage.look()
    stage.rotated(1).rename(stage.log.with_name("copy.jsonl"))
    look(stage)


@pytest.mark.parametrize("first", [b"", b'{"turn": ', FIRST])
def test_a_log_emptied_between_the_system_calls_of_a_look_is_refused(
    stage: Stage, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it was seen to be what it was, and before more is read of it."""
    stage.append(first)
    look(stage)
    stage.append((FIRST + lines(1, 9))[len(first) :])
    read = Follower._read

    def emptied(self: Follower) -> bool:
        monkeypatch.undo()
        stage.copy_and_truncate()
        stage.append(FIRST + lines(10, 20))
        return read(self)

    monkeypatch.setattr(Follower, "_read", emptied)
    refused(stage)


def test_a_file_that_was_read_and_got_more_is_no_copy(stage: Stage) -> None:
    """Its writer held it a moment longer: it is known by its number and its bytes."""
    stage.append(lines(1, 9))
    look(stage)
    stage.rotate()
    stage.append(lines(10, 9))
    look(stage)
    with stage.rotated(1).open("ab") as late:
        late.write(lines(90, 1))
    stage.append(lines(19, 9))
    look(stage)


def test_a_replaced_log_beside_a_file_that_came_since_is_refused(stage: Stage) -> None:
    """The file that was read is gone; which of the two comes first cannot be known."""
    stage.append(lines(1, 60))
    look(stage)
    stage.replace()
    stage.append(lines(61, 3))
    stage.rotated(1).write_bytes(lines(1, 62))
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: it and .*{LOG} came after .* which is gone; .*begin anew in"):
        stage.look()


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
