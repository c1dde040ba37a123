"""Files that grow a whole piece at a time."""

from __future__ import annotations

import errno
import os
from io import FileIO
from pathlib import Path

import pytest

from evalq.producer.folder.files import AppendedFile, whole_lines


def test_what_a_killed_driver_left_half_written_goes_at_the_first_piece(tmp_path: Path) -> None:
    """And not before: whoever only reads changes nothing."""
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\nthr")
    whole = list(whole_lines(path))
    assert whole == [b"one\n", b"two\n"]
    file = AppendedFile(path, sum(map(len, whole)))
    assert path.read_bytes() == b"one\ntwo\nthr"
    file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_an_interrupted_piece_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C as the sync returns: whoever goes on in this process counts from where the file ends for it."""
    file = AppendedFile(tmp_path / "log")
    file.append(b"one\n")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.append(b"two\n")
    file.append(b"three\n")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"one\nthree\n"
    assert file.end == len(b"one\nthree\n")


def test_a_piece_that_a_full_disk_refuses_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file ends as it did, so that the next piece stands behind a whole one."""
    file = AppendedFile(tmp_path / "log")
    file.append(b"one\n")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.append(b"two\n")
    file.append(b"three\n")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"one\nthree\n"


class _Uncut(FileIO):
    """One whose first cut does not come about."""

    error: BaseException | None = None

    def truncate(self, size: int | None = None) -> int:
        error, _Uncut.error = _Uncut.error, None
        if error is not None:
            raise error
        return super().truncate(size)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "no cut")])
def test_a_torn_piece_that_could_not_be_cut_off_is_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The next piece never stands behind it, where every place counted from the end would be wrong."""
    (tmp_path / "log").write_bytes(b"one\ntorn")
    monkeypatch.setattr("evalq.producer.folder.files.open_appending", lambda path: _Uncut(path, "ab"))
    file = AppendedFile(tmp_path / "log", len(b"one\n"))
    _Uncut.error = error
    with pytest.raises(type(error)):
        file.append(b"two\n")
    file.append(b"three\n")
    file.close()
    assert (tmp_path / "log").read_bytes() == b"one\nthree\n"
