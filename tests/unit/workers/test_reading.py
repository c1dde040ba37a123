"""A worker reads only under its roots, and only the planned bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.model.canonical import pack
from evalq.evalcore.model.manifest import Chunk, PlannedInput
from evalq.evalcore.records.digests import chunk_digest
from evalq.workers.inputs import CHANGED, UNREADABLE, read, unpack_blob
from tests.samples import KEY

DATA = b"one\ntwo\nthree\n"


def _chunk(start: int = 4, end: int = 8) -> Chunk:
    return Chunk(0, 0, start, end, 2, 1, chunk_digest(DATA[start:end], KEY))


def _planned(path: str) -> PlannedInput:
    return PlannedInput("x", "x", path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the input in it, and a secret beside it."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "x").write_bytes(DATA)
    (tmp_path / "secret").write_bytes(DATA)
    return root


def test_a_planned_range_is_read(root: Path) -> None:
    """The bytes of the chunk and no others, from whichever root has them."""
    assert read(_planned("sub/x"), _chunk(), [root.parent / "nothing", root], KEY) == b"two\n"


@pytest.mark.parametrize("path", ["../secret", "sub/../../secret", "/etc/passwd", "", "sub", "nothing"])
def test_nothing_outside_the_roots_is_read(root: Path, path: str) -> None:
    """Climbing, absolute, empty and foreign paths are as if they were not there."""
    assert read(_planned(path), _chunk(), [root], KEY) == UNREADABLE


def test_a_link_does_not_lead_out(root: Path) -> None:
    """A symbolic link inside a root that points outside is not followed; one that stays inside is."""
    (root / "out").symlink_to(root.parent / "secret")
    (root / "in").symlink_to(root / "sub" / "x")
    assert read(_planned("out"), _chunk(), [root], KEY) == UNREADABLE
    assert read(_planned("in"), _chunk(), [root], KEY) == b"two\n"


def test_other_bytes_are_said_to_be_changed(root: Path) -> None:
    """A file that is there with other bytes, or shorter, is CHANGED; another root with the right bytes serves."""
    (root / "sub" / "x").write_bytes(b"one\n")
    assert read(_planned("sub/x"), _chunk(), [root], KEY) == CHANGED
    other = root.parent / "other"
    (other / "sub").mkdir(parents=True)
    (other / "sub" / "x").write_bytes(DATA)
    assert read(_planned("sub/x"), _chunk(), [root, other], KEY) == b"two\n"


def test_a_blob_is_taken_only_for_what_it_is() -> None:
    """Packed bytes come back; another chunk's, damaged ones, and ones that would unpack to more are refused."""
    assert unpack_blob(pack(DATA[4:8]), _chunk(), KEY) == b"two\n"
    assert unpack_blob(pack(b"xxx\n"), _chunk(), KEY) == CHANGED
    assert unpack_blob(b"no zstd", _chunk(), KEY) == CHANGED
    assert unpack_blob(pack(b"\0" * (64 << 20)), _chunk(), KEY) == CHANGED
