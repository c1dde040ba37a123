"""The messages on the progress of a run."""

from __future__ import annotations

import io
import json

import pytest

from evalq.producer.monitor.progress import Reporter, ShownProgress


def test_what_was_done_before_is_no_part_of_the_pace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep that goes on tells the calls it makes now a second, of how many, and the time that the rest takes so."""
    now = 1000.0
    monkeypatch.setattr("evalq.producer.monitor.progress.time.monotonic", lambda: now)
    reporter = Reporter("records", quiet=False, bar=False, json_lines=False)
    with reporter.watching() as watch:
        for made in (0, 30, 60):
            watch(ShownProgress(50_000 + made, 50_000 + made, 60_000, note="5 in flight", unit="calls"))
            now += 61
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "50,060 of 60,000 calls, 0.5/s, 5 h 36 min left, 5 in flight"


def test_what_stands_still_has_no_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After five seconds without anything new there is neither a rate nor an end in sight, but for how long so."""
    now = 1000.0
    monkeypatch.setattr("evalq.producer.monitor.progress.time.monotonic", lambda: now)
    reporter = Reporter("rows", quiet=False, bar=False, json_lines=False, line_seconds=0)
    with reporter.watching() as watch:
        for done, later in ((0, 1), (100, 4), (100, 2), (100, 1), (200, 1)):
            watch(ShownProgress(done, done, 1000))
            now += later
    assert capsys.readouterr().err.splitlines() == [
        "0 rows, 0.0/s",
        "100 rows, 100.0/s, 9 s left",
        "100 rows, 20.0/s, 45 s left",
        "100 rows, nothing new for 6 s",
        "200 rows, 25.0/s, 32 s left",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_waiting_is_reported_to_who_asked_for_quiet_too(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Why nothing happens is a warning: -q hides progress, not that."""
    reporter = Reporter("rows", quiet=quiet, bar=True, json_lines=False)
    reporter.waiting("the server is away", 3.2, 120.0)
    reporter.waiting("no worker serves q yet", 4.0, None)
    reporter.recovered("the server is away", 14.0)
    assert capsys.readouterr().err.splitlines() == [
        "waiting: the server is away (3 s so far, 120 s at most)",
        "waiting: no worker serves q yet",
        "resumed after 14 s of waiting",
    ]


def test_waiting_is_a_json_line_where_those_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """What, since when, and how long at most; standard error stays empty."""
    reporter = Reporter("rows", quiet=False, bar=True, json_lines=True)
    reporter.waiting("the server is away", 3.24, 120.0)
    reporter.recovered("the server is away", 14.0)
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {"event": "waiting", "what": "the server is away", "since": 3.2, "limit": 120.0},
        {"event": "recovered", "what": "the server is away", "after": 14.0},
    ]
    assert not err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_hosts_say_is_no_markup_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in brackets ends no command, a number in them stays, and an escape is shown."""
    shown = _Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("COLUMNS", "200")
    said = "h: cannot load x: [Errno 2] no such file: [/tmp/x] \x1b]0;mine\x07"
    with Reporter("rows", quiet=False, bar=True, json_lines=False).watching() as watch:
        watch(ShownProgress(1, 1, 10, trouble=(said,)))
    assert "[Errno 2] no such file: [/tmp/x] \N{REPLACEMENT CHARACTER}]0;mine" in shown.getvalue()
    assert "\x1b]0;mine" not in shown.getvalue()
