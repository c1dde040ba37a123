"""Spans of time as people read them."""

import pytest

from evalq.producer.monitor.fleet import format_duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 3_600 * 4 + 59, "3 d 4 h"),
    ],
)
def test_a_span_is_said_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said
