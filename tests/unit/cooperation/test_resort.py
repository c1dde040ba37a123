"""Logs whose own agents go back in time: sorted in files, exactly, in bounded memory and with few files open."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import InputChanged
from evalq.evalcore.evaluators.cooperation import Cooperation, Rules, evaluator, resort, score
from evalq.evalcore.evaluators.cooperation.report import CooperationState
from evalq.evalcore.evaluators.cooperation.resort import SortLimits, resorted
from tests.unit.cooperation.logs import as_jsonl, entry, report_bytes, run, state_of
from tests.unit.cooperation.test_metrics import agrees

TINY = SortLimits(run_rows=5, fan_in=3, block_bytes=200)


def shuffled_log(rows: int, seed: int = 7) -> list[dict[str, Any]]:
    """Rows in no order, many of one turn, with ints, floats, big ints and strings."""
    rng = random.Random(seed)
    amounts = [3, 8, 2.5, 0.1, 10**25, 10**25 + 1, "4", "4.75", -1.5, 2**53 + 1]
    return [
        {
            "turn": rng.randrange(rows // 4),
            "agent": rng.choice("abc"),
            "decision": rng.choice(["join", "steal", None, "nap"]),
            "resources": {"stone": rng.choice(amounts)},
        }
        for _ in range(rows)
    ]


def sort(log: list[dict[str, Any]], reread: bytes, scratch: Path) -> CooperationState:
    """The state of ``log`` sorted from what a second reading gives."""
    return resorted(state_of(log), Rules(), lambda: io.BytesIO(reread), scratch, TINY)


def test_tiny_runs_in_many_passes_give_the_oracles_numbers() -> None:
    """300 rows in 60 files, three merged at a time: every number as if sorted in memory."""
    log = shuffled_log(300)
    narrow = run(as_jsonl(log), 16, Cooperation(TINY))
    agrees(entry(narrow), log)
    assert report_bytes(narrow) == report_bytes(run(as_jsonl(log)))


def test_rows_of_one_agent_and_turn_keep_their_order() -> None:
    """The sort is stable: stone goes 9, 1, 9, 1 within turn 5, however the rows fall into files."""
    log = [{"turn": 6, "agent": "a"}] + [
        {"turn": 5, "agent": "a", "resources": {"stone": 9 if n % 2 else 1}} for n in range(61)
    ]
    got = entry(run(as_jsonl(log), 4, Cooperation(TINY)))
    assert got["contributions"] == {"a": 30 * 8.0}


@pytest.mark.parametrize("missing", [[1], [2, 3], [100], [1, 57, 100], list(range(20, 60))])
def test_lines_whose_events_could_not_be_had_are_left_out_again(missing: list[int], tmp_path: Path) -> None:
    """Wherever they stand, in whichever block of the second reading: the numbers are those of the other lines."""
    log = shuffled_log(100)
    rest = [row for line, row in enumerate(log, 1) if line not in missing]
    state = state_of(rest)
    state.missing = missing
    found = resorted(state, Rules(), lambda: io.BytesIO(as_jsonl(log)), tmp_path, TINY)
    expected = sort(rest, as_jsonl(rest), tmp_path)
    expected.missing = missing
    assert found.to_wire() == expected.to_wire()


def test_files_that_are_merged_make_room(tmp_path: Path) -> None:
    """Of a group only the merged file is left, so the disk holds the rows about once."""
    paths = [tmp_path / f"run-{number}.jsonl" for number in range(7)]
    for number, path in enumerate(paths):
        resort._write_rows(path, iter([resort._SortedRow(number, "a", 0, None), resort._SortedRow(9, "a", 0, number)]))
    left = resort._merge_down(paths, TINY)
    assert sorted(tmp_path.iterdir()) == sorted(left) == [paths[0], paths[3], paths[6]]
    assert [row.turn for row in resort._merge_files(left)] == [*range(7), *[9] * 7]
    assert [row.value for row in resort._merge_files(left)] == [*[None] * 7, *range(7)]


def test_limits_stay_as_they_are() -> None:
    """They belong to the evaluator, which all runs share."""
    with pytest.raises(AttributeError):
        TINY.fan_in = 2  # type: ignore[misc]  # that is the point


def test_the_scratch_folder_is_left_empty(tmp_path: Path) -> None:
    """Every temporary file is gone after the sort."""
    log = shuffled_log(100)
    state = sort(log, as_jsonl(log), tmp_path)
    assert state.rows == 100
    assert list(tmp_path.iterdir()) == []


def test_a_byte_order_mark_and_bad_lines_do_not_trouble_the_second_reading(tmp_path: Path) -> None:
    """The second reading takes the same rows as the first did."""
    log = shuffled_log(40)
    data = b"\xef\xbb\xbf" + as_jsonl(log).replace(b"\n", b"\nnonsense\n", 3)
    agrees(entry(run(data, chosen=Cooperation(TINY), skip_bad_lines=True)), log)


@pytest.mark.parametrize("change", ["fewer", "other agent", "other decision"])
def test_another_log_at_the_second_reading_is_an_error(change: str, tmp_path: Path) -> None:
    """Fewer rows, or as many others, are not silently taken for the log of the first reading."""
    log = shuffled_log(40)
    other = [dict(row) for row in log]
    if change == "fewer":
        other.pop()
    elif change == "other agent":
        other[3]["agent"] = "d"
    else:
        other[3]["decision"] = "join" if other[3]["decision"] != "join" else "nap"
    with pytest.raises(InputChanged, match="changed between its two readings"):
        sort(log, as_jsonl(other), tmp_path)


def test_rows_behind_those_that_were_evaluated_are_left_alone(tmp_path: Path) -> None:
    """A run that stopped early, or a log that has grown, is sorted as far as it was evaluated."""
    log = shuffled_log(80)
    assert sort(log[:50], as_jsonl(log), tmp_path).to_wire() == sort(log[:50], as_jsonl(log[:50]), tmp_path).to_wire()


def test_a_log_in_order_within_each_agent_is_not_read_again(tmp_path: Path) -> None:
    """Rows of different agents out of order need no sort, and so no second reading."""
    log = [{"turn": n + (5 if agent == "a" else 0), "agent": agent} for n in range(9) for agent in "ab"]
    state = state_of(log)

    def never() -> io.BytesIO:
        raise AssertionError("read again")

    assert evaluator.whole.settle(state, evaluator.Params(), never, tmp_path) is state
    agrees(entry(run(as_jsonl(log))), log)


def test_too_many_scattered_turns_out_of_order_are_counted_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the turn set is full, a log out of order is sorted and its turns are still counted exactly."""
    monkeypatch.setattr(score, "MOST_BLOCKS", 3)
    log = [{"turn": n * 1000 + (700 if agent == "a" else 0), "agent": agent} for n in range(9) for agent in "ab"]
    about = entry(run(as_jsonl(log), 4, Cooperation(TINY)))["metadata"]
    assert (about["total_turns"], about["out_of_order"]) == (18, True)
