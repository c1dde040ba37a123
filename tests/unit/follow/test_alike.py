"""Logs whose files are equal, or begin with all of one another: each is read once, or it is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.errors import InputChanged, InputError
from evalq.evalcore.files import open_raw
from evalq.producer.follow.checkpoint import Checkpoint
from evalq.producer.follow.segment import PRINT_BYTES, FileSeen
from tests.unit.follow.stage import LOG, Stage
from tests.unit.follow.test_copies import lines, look

SMALL, LARGE = 3, 60
"""Lines of a file of less than a kilobyte, and of one of more."""
RUN = lines(1, 200)
ASIDE = lines(900, 9)


def run(count: int) -> bytes:
    """What a simulation with one seed wrote until its line ``count``."""
    return RUN[: len(lines(1, count))]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A log that is not there yet."""
    with Stage(tmp_path, settling=()).entered() as stage:
        yield stage


def write_on(stage: Stage, count: int) -> None:
    """Go on with what a simulation writes to the log that there is, until its line ``count``."""
    there = stage.log.stat().st_size if stage.log.exists() else 0
    stage.append(run(count)[there:])


@pytest.mark.parametrize("how", ["rotate", "rotate_by_date"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("more", [0, 2])
def test_each_file_of_a_simulation_that_is_run_again_is_read(
    stage: Stage, how: str, left: bool, size: int, more: int
) -> None:
    """Rotated at each start by renaming, several times between two looks: equal files, or each longer than the last."""
    write_on(stage, size - 1)
    look(stage)
    if left:
        stage.forget()
    for number in range(4):
        write_on(stage, size + more * number)
        getattr(stage, how)()
    for count in (1, size, size + 9):
        write_on(stage, count)
        look(stage)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_each_run_is_read_where_the_log_is_copied_and_emptied_at_each_start(stage: Stage, size: int) -> None:
    """With a look between two of them: no other file can be the copy."""
    write_on(stage, size - 1)
    look(stage)
    for count in (1, size - 1, size):
        write_on(stage, size + 1)
        stage.copy_and_truncate()
        write_on(stage, count)
        look(stage)


@pytest.mark.parametrize("now", [0, 1, SMALL, SMALL + 9])
def test_each_run_of_less_than_a_kilobyte_is_read_where_the_log_was_copied_and_emptied_twice(
    stage: Stage, now: int
) -> None:
    """As of logs that begin with a header."""
    write_on(stage, 1)
    look(stage)
    for count in (SMALL, SMALL + 1):
        write_on(stage, count)
        stage.copy_and_truncate()
    write_on(stage, now)
    look(stage)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_run_is_read_that_was_copied_and_emptied_before_the_next_was_renamed(stage: Stage, size: int) -> None:
    """The log is the third, and begins with all of it; the second, which has the first one's inode, does not."""
    write_on(stage, 1)
    look(stage)
    write_on(stage, size)
    stage.copy_and_truncate()
    write_on(stage, 2)
    stage.rotate()
    write_on(stage, size + 9)
    look(stage)


@pytest.mark.parametrize("counts", [(LARGE, LARGE), (LARGE, LARGE + 9), (LARGE + 9, LARGE)])
@pytest.mark.parametrize("now", [b"", run(1), run(LARGE + 1), ASIDE])
@pytest.mark.parametrize("first", [0, 1])
def test_two_copies_that_begin_alike_are_refused(stage: Stage, counts: tuple[int, int], now: bytes, first: int) -> None:
    """One may have been made by hand, and its lines would be read twice; or both are of the log, and one left out."""
    stage.append(run(first))
    look(stage)
    for count in counts:
        write_on(stage, count)
        stage.copy_and_truncate()
    stage.append(now)
    with pytest.raises(InputChanged, match=rf"{LOG}\.2: it and .*{LOG}\.1 begin alike; .*begin anew in another --run"):
        stage.look()


def test_a_file_that_a_removed_one_may_have_been_is_refused_beside_a_log_that_may_be_it_too(stage: Stage) -> None:
    """Rotation keeps one file: what was read is gone with what came behind it, and both that are left begin so."""
    write_on(stage, LARGE)
    look(stage)
    stage.forget()
    write_on(stage, LARGE + 1)
    stage.log.rename(stage.out / "held")  # keeps the inode in use
    write_on(stage, LARGE + 2)
    stage.rotate()
    write_on(stage, LARGE + 3)
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: it and .*{LOG} begin as .* which is gone; .*begin anew in"):
        stage.look()


@pytest.mark.parametrize("more", [0, 9])
def test_a_copy_in_place_of_an_equal_one_that_was_read_is_refused(stage: Stage, more: int) -> None:
    """`cp log log.1` over the older copy: the same inode and the same bytes, or it is the old file, which got more."""
    write_on(stage, LARGE)
    look(stage)
    stage.copy_and_truncate()
    write_on(stage, 1)
    look(stage)
    write_on(stage, LARGE + more)
    shutil.copyfile(stage.log, stage.rotated(1))
    os.utime(stage.rotated(1), (2**32, 2**32))  # the clock of files may be slow to move on
    os.truncate(stage.log, 0)
    write_on(stage, 2)
    with pytest.raises(InputChanged, match=rf"{LOG}\.1: it was read to its end, and written to since; .*begin anew in"):
        stage.look()


def unreadable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user, with no rights for others: the tests' own may be allowed to read all."""
    number = path.stat().st_ino

    def refuse(given: Path) -> object:
        if given.exists() and given.stat().st_ino == number:
            raise PermissionError(13, "Permission denied")
        return open_raw(given)

    monkeypatch.setattr("evalq.producer.follow.segment.open_raw", refuse)


@pytest.mark.parametrize("how", ["rotate", "copy_and_truncate"])
def test_no_file_is_opened_that_was_rotated_away_before(
    stage: Stage, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another user's."""
    stage.rotated(1).write_bytes(run(LARGE))
    unreadable(stage.rotated(1), monkeypatch)
    for count in (0, 1, LARGE):
        stage.append(run(count))
        look(stage)
        stage.append(ASIDE)
        getattr(stage, how)()
        write_on(stage, 1)
        stage.forget()
        look(stage)
        getattr(stage, how)()
        look(stage)


def test_a_copy_that_cannot_be_opened_is_an_error_that_names_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold what comes next."""
    write_on(stage, SMALL)
    look(stage)
    stage.copy_and_truncate()
    unreadable(stage.rotated(1), monkeypatch)
    with pytest.raises(InputError, match=rf"{LOG}\.1: Permission denied"):
        stage.look()


def test_a_checkpoint_keeps_what_stands_beside_the_file_at_hand_only(stage: Stage) -> None:
    """Of hundreds of files each would have it of hundreds."""
    for number in range(4):
        stage.append(lines(100 * number, 9))
        look(stage)
        stage.rotate()
    stage.append(RUN)
    look(stage)
    kept = Checkpoint.load(stage.out)
    assert kept is not None
    *done, current = kept.segments
    assert [each.beside for each in done] == [None] * 4
    assert current.beside is not None
    assert {FileSeen(*each) for each in current.beside} == {
        FileSeen.of(stage.rotated(number).stat()) for number in range(1, 5)
    }


def test_sizes_are_what_they_are_called() -> None:
    """Less than a print, and more."""
    assert len(run(SMALL + 9)) < PRINT_BYTES < len(run(LARGE))
