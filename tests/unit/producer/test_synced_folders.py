"""A folder that its file system cannot sync is no error; one that could not be synced is named."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from evalq.producer.folder.run_folder import sync_folder
from tests.integration.harness import evalq

CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF)


def _refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    stock = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        stock(handle)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("number", CANNOT)
def test_what_cannot_be_synced_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """SMB, FUSE, shared folders of virtual machines: their files are synced all the same."""
    _refusing(monkeypatch, number)
    sync_folder(tmp_path)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_what_failed_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A disk that is full or broken."""
    _refusing(monkeypatch, number)
    with pytest.raises(OSError, match=str(tmp_path)) as raised:
        sync_folder(tmp_path)
    assert raised.value.errno == number


@pytest.mark.parametrize(("number", "code"), [(errno.EINVAL, 0), (errno.EIO, 3)])
def test_a_run_there(tmp_path: Path, number: int, code: int) -> None:
    """A whole command on such a file system."""
    (tmp_path / "t.jsonl").write_text('{"actual_output": "ok"}\n')
    (tmp_path / "sitecustomize.py").write_text(
        "import os, stat\nstock = os.fsync\n"
        "def fsync(handle):\n"
        "    if stat.S_ISDIR(os.fstat(handle).st_mode):\n"
        f"        raise OSError({number}, os.strerror({number}))\n"
        "    stock(handle)\n"
        "os.fsync = fsync\n"
    )
    words = ("verification", "t.jsonl", "--inline", "--out", "run", "--format", "none")
    done = evalq(*words, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert code == 0 or "run" in done.stderr
