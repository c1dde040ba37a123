"""Reading what somebody else wrote, in no more memory than it takes."""

from __future__ import annotations

import io

import pytest

from evalq.evalcore.files import read_up_to


class _Asked(io.BytesIO):
    """A stream that remembers the most that it was asked for at once."""

    most = 0

    def read(self, size: int | None = -1) -> bytes:
        self.most = max(self.most, size if size is not None and size >= 0 else 1 << 62)
        return super().read(size)


@pytest.mark.parametrize("length", [0, 1, 9, 10, 11, 3 << 20])
@pytest.mark.parametrize("most", [0, 9, 10, 1 << 30])
def test_what_may_be_long_takes_no_room_before_it_comes(length: int, most: int) -> None:
    """A limit of a gigabyte takes no memory for a short file; one byte too many shows that it is longer."""
    data = bytes(range(256)) * (length // 256) + bytes(length % 256)
    stream = _Asked(data)
    assert read_up_to(stream, most) == data[: most + 1]
    assert stream.most <= 1 << 20
