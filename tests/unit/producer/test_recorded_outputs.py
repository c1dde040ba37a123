"""calls.jsonl, the outputs of a sweep as they came: only whoever drives the sweep changes it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from evalq.evalcore.model.calls import Attempt, Output
from evalq.producer.folder.call_log import RecordedOutputs

TOTAL = 6


def _output(call: int) -> Output:
    attempts = (Attempt(kind="server", cost=0.25), Attempt(cost=0.5))
    return Output(call=call, case="c", agent="a", repeat=call, prompt="p", target="t", config="c", attempts=attempts)


def test_who_only_reads_cuts_nothing_off(tmp_path: Path) -> None:
    """A line that is being written by the driver of a run looks torn to everybody else: it stays, and is kept whole."""
    path = tmp_path / "calls.jsonl"
    driver = RecordedOutputs(path, TOTAL)
    driver.add([_output(0)])
    whole, line = path.read_bytes(), msgspec.json.encode(_output(1)) + b"\n"
    for cut in (1, len(line) // 2, len(line) - 1):
        path.write_bytes(whole + line[:cut])
        reader = RecordedOutputs(path, TOTAL)
        assert reader.calls() == [0]
        assert path.read_bytes() == whole + line[:cut]
    path.write_bytes(whole + line)
    assert RecordedOutputs(path, TOTAL).calls() == [0, 1]


def test_the_next_driver_cuts_off_what_a_killed_one_left(tmp_path: Path) -> None:
    """Before its first own line, and nothing else."""
    path = tmp_path / "calls.jsonl"
    RecordedOutputs(path, TOTAL).add([_output(0)])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"call":1,"ca')
    RecordedOutputs(path, TOTAL).add([_output(2)])
    assert path.read_bytes() == whole + msgspec.json.encode(_output(2)) + b"\n"
    assert RecordedOutputs(path, TOTAL).calls() == [0, 2]


def test_attempts_that_came_to_nothing_are_known(tmp_path: Path) -> None:
    """What was begun and is not recorded may have been paid; what is recorded counts by its attempts."""
    path = tmp_path / "calls.jsonl"
    recorded = RecordedOutputs(path, TOTAL)
    recorded.add([_output(0)])
    assert (recorded.begun, recorded.lost) == (2, 0)
    recorded.note_begun(7)
    recorded.note_begun(7)
    recorded.add([_output(1)])
    for known in (recorded, RecordedOutputs(path, TOTAL)):
        assert (known.begun, known.lost, known.attempts, known.spending.total) == (7, 3, 4, 1.5)
        assert known.calls() == [0, 1]
    assert path.read_bytes().count(b'{"begun"') == 1


def test_attempts_of_a_process_that_died_are_not_those_that_ended_since(tmp_path: Path) -> None:
    """They are lost, whatever the living are recorded to have made; also where it died with all other counts alike."""
    recorded = RecordedOutputs(tmp_path / "calls.jsonl", TOTAL)
    recorded.note_begun(5, under_way={"gone": 3, "p": 2})
    recorded.note_begun(5, under_way={"p": 2, "gone": 3})
    recorded.add([_output(0)])
    for known in (recorded, RecordedOutputs(tmp_path / "calls.jsonl", TOTAL)):
        assert (known.under_way, known.lost) == ({"gone": 3}, 0)


def test_a_call_that_is_to_be_made_again_was_had(tmp_path: Path) -> None:
    """Other than one that another producer recorded."""
    recorded = RecordedOutputs(tmp_path / "calls.jsonl", TOTAL)
    recorded.add([_output(0)])
    recorded.drop([0])
    assert (recorded.has(0), recorded.was_recorded(0), recorded.was_recorded(1)) == (False, True, False)


def test_an_output_that_was_kept_twice_counts_once(tmp_path: Path) -> None:
    """Ctrl-C between a line and its note, and the same output collected once more before the process ended."""
    path = tmp_path / "calls.jsonl"
    RecordedOutputs(path, TOTAL).add([_output(0), _output(1)])
    path.write_bytes(path.read_bytes() * 2)
    known = RecordedOutputs(path, TOTAL)
    assert (known.count, known.paid, known.attempts, known.spending.total) == (2, 2, 4, 1.5)
    assert known.get(1) == _output(1)


@given(
    pieces=some.lists(some.tuples(some.sampled_from(["", "giver", None]), some.integers(1, 3)), min_size=1, max_size=4),
    cut=some.floats(0, 1),
)
def test_a_call_that_is_paid_after_a_kill_is_never_taken_for_a_free_one(
    pieces: list[tuple[str | None, int]], cut: float
) -> None:
    """Wherever the kill cuts the file: what was taken over in one piece is there as a whole or not at all."""
    with TemporaryDirectory() as folder:
        path, sizes, calls = Path(folder) / "calls.jsonl", [0], iter(range(12))
        before = RecordedOutputs(path, 12)
        for giver, count in pieces:
            outputs = [_output(call) for call in islice(calls, count)]
            before.add(outputs, cached=giver is not None, of=giver or "")
            sizes.append(path.stat().st_size)
        data = path.read_bytes()
        path.write_bytes(data[: int(cut * len(data))])
        killed = RecordedOutputs(path, 12)
        # A paid output counts alone; of others all stand that were there before their piece was cut.
        whole = sum(size <= cut * len(data) for size in sizes[1:])
        free = sum(count for giver, count in pieces[:whole] if giver is not None)
        assert sum(killed.reused.values()) == killed.count - killed.paid == free
        missing = [call for call in range(12) if not killed.has(call)]
        paid = killed.paid + len(missing)
        killed.add([_output(call) for call in missing])
        for known in (killed, RecordedOutputs(path, 12)):
            assert (known.count, known.paid, known.attempts) == (12, paid, 2 * paid)
            assert (known.spending.total, sum(known.reused.values())) == (0.75 * paid, free)
            assert [known.get(call) for call in range(12)] == [_output(call) for call in range(12)]


def test_what_a_torn_takeover_of_before_left_open_is_paid_for(tmp_path: Path) -> None:
    """Also where more was added behind it: outputs stand right behind the line that gives them."""
    path = tmp_path / "calls.jsonl"
    RecordedOutputs(path, TOTAL).add([_output(0), _output(1)], cached=True, of="giver")
    torn = b"".join(path.read_bytes().splitlines(keepends=True)[:2])
    for behind in (_output(2), _output(3)):
        torn += msgspec.json.encode(behind) + b"\n"
    path.write_bytes(torn)
    known = RecordedOutputs(path, TOTAL)
    (lost,) = {0, 1} - set(known.calls())
    known.add([_output(lost)])
    for each in (known, RecordedOutputs(path, TOTAL)):
        assert (each.paid, each.reused, each.is_reused(lost), each.is_reused(1 - lost)) == (
            3,
            {"giver": 1},
            False,
            True,
        )


def test_a_takeover_that_was_kept_twice_leaves_nothing_free(tmp_path: Path) -> None:
    """Ctrl-C before it was noted, and the same taken over once more; an output that is made anew later is paid for."""
    path = tmp_path / "calls.jsonl"
    RecordedOutputs(path, TOTAL).add([_output(0)], cached=True, of="giver")
    path.write_bytes(path.read_bytes() * 2)
    known = RecordedOutputs(path, TOTAL)
    known.drop([0])
    known.add([_output(0)])
    assert [(each.paid, +each.reused) for each in (known, RecordedOutputs(path, TOTAL))] == [(1, {})] * 2


def test_a_failure_that_nobody_tried_again_is_put_back(tmp_path: Path) -> None:
    """With its kind, its giver and its attempts, and nothing is paid once more; what was tried again stays as it is."""
    path = tmp_path / "calls.jsonl"
    recorded = RecordedOutputs(path, TOTAL)
    failed = [msgspec.structs.replace(_output(call), error="server: 500") for call in range(3)]
    recorded.add(failed[:2])
    recorded.add(failed[2:], cached=True, of="giver")
    recorded.drop([0, 1, 2])
    recorded.add([_output(1)])
    recorded.put_back()
    recorded.put_back()
    for known in (recorded, RecordedOutputs(path, TOTAL)):
        assert (known.calls(), known.failed(), known.count) == ([0, 1, 2], [0, 2], 3)
        assert (known.paid, known.attempts, known.spending.total) == (3, 6, 2.25)
        assert (known.unanswered(), known.reused) == ({"server": 2}, {"giver": 1})
        assert (known.get(0), known.get(2), known.is_reused(2)) == (failed[0], failed[2], True)
        assert known.get(1) == _output(1).after(failed[1])
    assert path.read_bytes().count(b'{"kept"') == 1
    recorded.drop([0])
    recorded.add([_output(0)])
    assert RecordedOutputs(path, TOTAL).get(0) == _output(0).after(failed[0])
