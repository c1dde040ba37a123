"""Logs whose files are equal, or begin with all of one another: each is read once, or it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.files import open_raw
from evalq.producer.follow.checkpoint import Checkpoint
from evalq.producer.follow.log_files import PRINT_BYTES, FileSeen
from tests.unit.follow.stage import Stage
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


def unreadable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another user, with no rights for others: the tests' own may be allowed to read all."""
    number = path.stat().st_ino

    def refuse(given: Path) -> object:
        if given.exists() and given.stat().st_ino == number:
            raise PermissionError(13, "Permission denied")
        return open_raw(given)

    monkeypatch.setattr("evalq.producer.follow.log_files.open_raw", refuse)


def test_no_file_is_opened_that_was_rotated_away_before(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another user's."""
    stage.rotated(1).write_bytes(run(LARGE))
    unreadable(stage.rotated(1), monkeypatch)
    for count in (0, 1, LARGE):
        stage.append(run(count))
        look(stage)
        stage.append(ASIDE)
        stage.rotate()
        write_on(stage, 1)
        stage.forget()
        look(stage)
        stage.rotate()
        look(stage)


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
