"""Server-sent events: the same however they are cut, and only whole ones."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalq.workers.targets.events import EventReader, ServerEvent, error_of

LINES = ["data: a", "data:b", "data", "data:  two spaces", "event: ping", "event:", ": comment", "id: 1", "x: y", ""]
ENDS = ["\n", "\r\n", "\r"]


def _plain(text: str) -> list[ServerEvent]:
    """The reference: all lines at once."""
    events, kind, data = [], "", list[str]()
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:  # the last has no end
        if not line:
            events += [ServerEvent(kind, "\n".join(data))] if data else []
            kind, data = "", []
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        kind = value if name == "event" else kind
        data += [value] if name == "data" else []
    return events


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(ENDS)), max_size=30),
    st.lists(st.integers(0, 400), max_size=12),
    st.booleans(),
    st.sampled_from(["", "data: cut", "ev"]),
)
def test_events_are_the_same_in_any_pieces(
    lines: list[tuple[str, str]], cuts: list[int], marked: bool, rest: str
) -> None:
    """Whatever ends their lines; what is not ended is no event."""
    text = ("\ufeff" if marked else "") + "".join(line + end for line, end in lines) + rest
    data, reader = text.encode(), EventReader()
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [event for start, end in itertools.pairwise(at) for event in reader.feed(data[start:end])]
    assert found + reader.end() == _plain(text)


def test_a_long_line_in_small_pieces_takes_no_square_of_its_time() -> None:
    """Each piece is searched once."""
    reader, began = EventReader(), time.process_time()
    reader.feed(b"data: ")
    for _ in range(20_000):
        assert not reader.feed(b"x" * 50)
    (event,) = reader.feed(b"\n\n")
    assert len(event.data) == 1_000_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        ("gone", "server", "E: the server failed: gone"),
        (None, "server", "E: the server failed"),
        ({}, "server", "E: the server failed"),
        ({"message": ["x"]}, "server", "E: the server failed"),
        ({"code": 401, "message": "no"}, "auth", "E: the server does not accept the key: see api_key_env: no"),
        ({"code": 429}, "rate_limit", "E: asked too often"),
        ({"code": 500, "status": "INTERNAL"}, "server", "E: the server failed (INTERNAL)"),
        ({"type": "overloaded_error"}, "rate_limit", "E: the provider is overloaded (overloaded_error)"),
        ({"code": "insufficient_quota"}, "quota", "E: the account's quota is spent (insufficient_quota)"),
        ({"type": "invalid_request_error"}, "refused", "E: the server refuses this request (invalid_request_error)"),
        ({"status": "DEADLINE_EXCEEDED"}, "timeout", "E: the server gave up waiting (DEADLINE_EXCEEDED)"),
    ],
)
def test_an_error_object_has_a_kind_and_a_reason(error: object, kind: str, reason: str) -> None:
    """Of any provider, whole or broken."""
    failed = error_of(error, "E")
    assert (failed.kind, failed.reason) == (kind, reason)
