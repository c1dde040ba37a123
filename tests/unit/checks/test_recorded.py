"""The whole output on examples and samples, against what was written down of it."""

from __future__ import annotations

from tests.unit.recorded import kept, made


def test_a_run_is_as_it_was_written_down() -> None:
    """The same declaration, inputs, lines, reports and Markdown: nothing changes unless it is meant to."""
    expected, got = kept("checks"), made("checks")
    assert sorted(got) == sorted(expected)
    for name in expected:
        assert got[name] == expected[name], name
