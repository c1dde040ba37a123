"""calls.jsonl, the outputs of a sweep as they came: only whoever drives the sweep changes it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from evalq.evalcore.model.calls import Attempt, Output
from evalq.producer.folder.call_log import Recorded

TOTAL = 6


def _output(call: int) -> Output:
    attempts = (Attempt(kind="server", cost=0.25), Attempt(cost=0.5))
    return Output(call=call, case="c", agent="a", repeat=call, prompt="p", target="t", config="c", attempts=attempts)


def test_who_only_reads_cuts_nothing_off(tmp_path: Path) -> None:
    """A line that is being written by the driver of a run looks torn to everybody else: it stays, and is kept whole."""
    path = tmp_path / "calls.jsonl"
    driver = Recorded(path, TOTAL)
    driver.add([_output(0)])
    whole, line = path.read_bytes(), msgspec.json.encode(_output(1)) + b"\n"
    for cut in (1, len(line) // 2, len(line) - 1):
        path.write_bytes(whole + line[:cut])
        reader = Recorded(path, TOTAL)
        assert reader.calls() == [0]
        assert path.read_bytes() == whole + line[:cut]
    path.write_bytes(whole + line)
    assert Recorded(path, TOTAL).calls() == [0, 1]


def test_the_next_driver_cuts_off_what_a_killed_one_left(tmp_path: Path) -> None:
    """Before its first own line, and nothing else."""
    path = tmp_path / "calls.jsonl"
    Recorded(path, TOTAL).add([_output(0)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"call":1,"ca')
    Recorded(path, TOTAL).add([_output(2)])
    assert path.read_bytes() == whole + msgspec.json.encode(_output(2)) + b"\n"
    assert Recorded(path, TOTAL).calls() == [0, 2]


def test_attempts_that_came_to_nothing_are_known(tmp_path: Path) -> None:
    """What was begun and is not recorded may have been paid; what is recorded counts by its attempts."""
    path = tmp_path / "calls.jsonl"
    recorded = Recorded(path, TOTAL)
    recorded.add([_output(0)])
    assert (recorded.begun, recorded.lost) == (2, 0)
    recorded.note_begun(7)
    recorded.note_begun(7)
    recorded.add([_output(1)])
    for known in (recorded, Recorded(path, TOTAL)):
        assert (known.begun, known.lost, known.attempts, known.spending.total) == (7, 3, 4, 1.5)
        assert known.calls() == [0, 1]
    assert path.read_bytes().count(b'{"begun"') == 1


def test_a_call_that_is_to_be_made_again_was_had(tmp_path: Path) -> None:
    """Other than one that another producer recorded."""
    recorded = Recorded(tmp_path / "calls.jsonl", TOTAL)
    recorded.add([_output(0)])
    recorded.drop([0])
    assert (recorded.has(0), recorded.had(0), recorded.had(1)) == (False, True, False)


def test_an_output_that_was_kept_twice_counts_once(tmp_path: Path) -> None:
    """Ctrl-C between a line and its note, and the same output collected once more before the process ended."""
    path = tmp_path / "calls.jsonl"
    Recorded(path, TOTAL).add([_output(0), _output(1)])
    path.write_bytes(path.read_bytes() * 2)
    known = Recorded(path, TOTAL)
    assert (known.count, known.paid, known.attempts, known.spending.total) == (2, 2, 4, 1.5)
    assert known.get(1) == _output(1)
