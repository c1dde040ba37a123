"""Chunks that kill are taken apart: which pieces are tried, how often, and what stands for a record that is dead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Batch, Evaluator, Outcome
from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.partial import encode
from evalq.evalcore.errors import InfrastructureError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.canonical import canonical_json
from evalq.evalcore.model.manifest import read_span
from evalq.evalcore.records.cut import Cutter
from evalq.workers.pool import isolation
from evalq.workers.pool.isolation import DEATHS, LOSSES, ChunkLimits, Isolation
from tests.contract.specimens import Summing, SumParams
from tests.samples import sampled

LIMITS = ChunkLimits(20.0, 1 << 30)
HANGS = 10


class Deadly(Summing):
    """Dies over records whose id is "deadly"."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Sum a chunk, or die of it."""
        if b"deadly" in batch.data:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(batch, params)


class Leaving(Summing):
    """Ends its process over every record."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Never returns."""
        os._exit(9)


class Parting(Summing):
    """Ends its process, and leaves one behind that it has started: a pool of its own, say."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Never returns."""
        if os.fork() == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HANGS)  # for the test's sake
            signal.pause()
        os._exit(9)


class Failing(Summing):
    """Has a bug."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Raise."""
        raise ZeroDivisionError("a bug \ud800")


def _batch(ids: list[str]) -> Batch:
    lines = (canonical_json({"id": name, "value": number}) + b"\n" for number, name in enumerate(ids))
    return Batch("in.jsonl", 11, b"".join(lines))


def _isolated(
    evaluator: Evaluator[Any, Any], batch: Batch, fallen: dict[str, int] | None = None
) -> tuple[Outcome[Any], list[str]]:
    """The outcome, and the pieces that were tried, in order."""
    tried: list[str] = []
    isolation = Isolation(evaluator, SumParams(), batch, LIMITS, fallen or {}, tried.append)
    return isolation.outcome(), tried


@given(st.sets(st.integers(0, 8)), st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_whatever_is_deadly_the_rest_is_as_it_would_be(deadly: set[int], count: int) -> None:
    """State, counts and lines are those of the other records, in order, with a dead one in each gap."""
    ids = ["deadly" if number in deadly else f"r{number}" for number in range(count)]
    outcome, _ = _isolated(Deadly(), _batch(ids))
    calm = Summing().evaluate(_batch([f"r{number}" for number in range(count)]), SumParams())
    gone = {number for number in range(count) if number in deadly}
    assert outcome.state.count == count - len(gone)
    assert outcome.tally.dead == len(gone)
    assert [line for line, _ in outcome.tally.listed.first] == [11 + number for number in sorted(gone)]
    for number, line in enumerate(outcome.lines):
        assert (b'"dead"' in line) if number in gone else (line == calm.lines[number])


def test_pieces_are_halved_after_one_death_and_a_lone_record_is_tried_three_times() -> None:
    """Of four records the last kills: the whole, both halves, both quarters of the second; the last of them thrice."""
    _, tried = _isolated(Deadly(), _batch(["a", "b", "c", "deadly"]))
    assert tried == ["0-4", "0-2", "2-4", "2-3", *["3-4"] * DEATHS]


def test_a_piece_that_took_a_worker_down_is_halved_without_another_trial() -> None:
    """And a lone record is dead only after LOSSES whole workers."""
    batch = _batch(["a", "b"])
    _, tried = _isolated(Summing(), batch, {"0-2": 1})
    assert tried == ["0-1", "1-2"]
    _, tried = _isolated(Summing(), batch, {"0-2": 1, "1-2": LOSSES - 1})
    assert tried == ["0-1", "1-2"]
    outcome, tried = _isolated(Summing(), batch, {"0-2": 1, "1-2": LOSSES})
    assert tried == ["0-1"]
    assert outcome.tally.listed.first == [(12, "dead: whole workers died with it")]


def test_a_chunk_that_does_not_kill_after_all_has_the_same_answer_as_ever() -> None:
    """One trial, and the bytes of the plain evaluation: a later duplicate finds the same digest."""
    batch = _batch(["a", "b", "c"])
    outcome, tried = _isolated(Summing(), batch)
    assert tried == ["0-3"]
    assert encode(outcome).digest == encode(Summing().evaluate(batch, SumParams())).digest


def test_an_evaluator_that_always_kills_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond MAX_DEAD records of one chunk it is not the data; that many still are. (It is 100, of a process each.)"""
    most = 4
    monkeypatch.setattr(isolation, "MAX_DEAD", most)
    outcome, _ = _isolated(Leaving(), _batch(["r"] * most))
    assert outcome.tally.dead == most
    with pytest.raises(InfrastructureError, match=f"over {most} records of one chunk.*exit code 9"):
        _isolated(Leaving(), _batch(["r"] * (most + 1)))


def test_a_death_is_seen_whatever_the_process_has_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it started has the pipe for its answer open, for as long as it runs: that could be for ever."""
    monkeypatch.setattr(isolation, "DEATHS", 1)
    began = time.monotonic()
    outcome, tried = _isolated(Parting(), _batch(["a"]))
    assert time.monotonic() - began < HANGS
    assert (outcome.tally.dead, tried) == (1, ["0-1"])


class Signalling(Summing):
    """Ends its process by a signal without a name."""

    def evaluate(self, batch: Batch, params: SumParams) -> Outcome[Any]:
        """Never returns."""
        os.kill(os.getpid(), signal.SIGRTMIN + 6)
        raise AssertionError


def test_a_record_that_kills_by_a_signal_without_a_name_is_dead_like_any_other() -> None:
    """Most real-time signals have none."""
    outcome, _ = _isolated(Signalling(), _batch(["a"]))
    assert outcome.tally.listed.first == [(11, f"dead: killed its process by signal {signal.SIGRTMIN + 6}")]


def test_a_bug_is_raised_and_not_taken_for_a_death() -> None:
    """With the exception's own words, also where they have no form in UTF-8."""
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError: a bug \\ud800"):
        _isolated(Failing(), _batch(["a"]))


@pytest.mark.parametrize("name", plugins.built_in())
def test_pieces_of_real_evaluators_fold_to_the_chunk_s_own_bytes(name: str, tmp_path: Path) -> None:
    """Halved all the way down, a chunk of sample records has the digest of its plain evaluation."""
    evaluator = plugins.get(name)
    request = evaluator.command.request(sampled(evaluator, tmp_path, 30, seed=4))
    params = validate(evaluator.Params, request.params, name)
    path = Path(request.inputs[0])
    with path.open("rb") as stream:
        cutter = Cutter(stream, evaluator.records.format, path.name, (), size=20)
        span = next(iter(cutter.spans()))
    batch = Batch(path.name, span.first_line, read_span(path, span), cutter.columns)
    ends = batch.ends(evaluator.records.format)
    assert len(ends) == span.records
    everywhere = {f"{a}-{b}": 1 for a in range(len(ends)) for b in range(a + 2, len(ends) + 1)}
    outcome = Isolation(evaluator, params, batch, LIMITS, everywhere, _ignored).outcome()
    assert encode(outcome).digest == encode(evaluator.evaluate(batch, params)).digest


def _ignored(piece: str) -> None:
    pass


def test_rows_are_parted_at_their_own_ends(tmp_path: Path) -> None:
    """Quoted newlines end no row; every part begins on its own line."""
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 30, seed=2)
    whole = evaluate_files("planagent", [path])
    with path.open("rb") as stream:
        cutter = Cutter(stream, "csv", path.name, ())
        span = next(iter(cutter.spans()))
    batch = Batch(path.name, span.first_line, read_span(path, span), cutter.columns)
    ends = batch.ends("csv")
    places = [f"rows.csv:{batch.part(ends, n, n + 1).first_line}" for n in range(30)]
    assert places == [record["record"] for record in whole.records()]
    assert b"".join(batch.part(ends, n, n + 1).data for n in range(30)) == batch.data


def test_a_block_in_time_and_one_out_of_it() -> None:
    """A process over its time is ended by SIGALRM, whatever it does; one in time goes on without an alarm."""
    assert _status_of(lambda: ChunkLimits(0.05, 1 << 30), lambda: signal.pause()) == -signal.SIGALRM
    assert _status_of(lambda: ChunkLimits(60.0, 1 << 30), lambda: None) == 0


def _status_of(limits: Callable[[], ChunkLimits], deed: Callable[[], None]) -> int:
    """How a process ends that does ``deed`` under ``limits``, and then checks that no alarm is set."""
    pid = os.fork()
    if pid == 0:
        try:
            with limits().bounding_time():
                deed()
            os._exit(0 if signal.getitimer(signal.ITIMER_REAL)[0] == 0 else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
