"""A few hundred made inputs for each reader; the long runs are `python -m tests.fuzz NAME --seconds 600`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.harnesses import HARNESSES, seeds

_PIECES = [b"[", b"]", b"{", b"}", b'"', b",", b":", b"\n", b"\r\n", b"null", b"1e999", b"-0", b"9" * 400, b"\\ud800",
           b"\xff", b"\xef\xbb\xbf", b"\x00", b"NaN", b"[" * 3000, b"&a [*a]", b"<<: *a", b"!!python/object:os.system",
           b"=cmd()", "질의".encode(), b"true"]  # fmt: skip


def _mangled(name: str) -> st.SearchStrategy[bytes]:
    """Seeds with pieces put in, cut out or doubled; and bytes of no form at all."""

    def mangle(seed: bytes, edits: list[tuple[float, float, bytes]]) -> bytes:
        for start, length, piece in edits:
            at = int(start * len(seed))
            seed = seed[:at] + piece + seed[at + int(length * 20) :]
        return seed

    edit = st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from(_PIECES) | st.binary(max_size=8))
    return st.builds(mangle, st.sampled_from(seeds(name)), st.lists(edit, max_size=6)) | st.binary(max_size=300)


@pytest.mark.parametrize("name", HARNESSES)
def test_reader(name: str) -> None:
    """Nothing but documented errors, each with a place and a reason, and output in bounds."""

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_mangled(name))
    def run(data: bytes) -> None:
        HARNESSES[name](data)

    run()
