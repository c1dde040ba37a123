"""What an estimate knows without a fleet: runs in this folder, a cache, and what was tried."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.errors import WireError
from evalq.evalcore.model.calls import Attempt, Output, Prompt
from evalq.producer.sweep.estimate import Means, keep_trial, means_of
from evalq.producer.sweep.reuse import Cache

PAID = Attempt(prompt_tokens=100, completion_tokens=10)
FREE = Attempt(kind="server", reason="cut")


def _output(call: int, *attempts: Attempt, config: str = "c") -> Output:
    return Output(call, "case", "a", call, "p", "t", config, output=msgspec.Raw(b"1"), attempts=attempts)


def _run(name: str, *outputs: Output, at: int = 0) -> None:
    folder = Path("evalq-runs", name)
    folder.mkdir(parents=True)
    file = folder / "outputs.jsonl"
    file.write_bytes(b"".join(output.line() + b"\n" for output in outputs))
    os.utime(file, (at, at))


def test_the_nearest_knowledge_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial; rather than that the cache; rather than that the newest run under these settings. Retries count to their
    call, and calls without tokens not at all.
    """
    monkeypatch.chdir(tmp_path)
    assert means_of("t", "c", "") is None
    assert keep_trial("t", "c", [[FREE]]) == ""
    assert keep_trial("t", "c", [[FREE, PAID], [PAID, PAID], [FREE]]) == "evalq-runs/measured.json"
    assert means_of("t", "c", "") == Means(2, 150, 15, "--try")
    assert means_of("t", "other", "") is None
    assert means_of("other", "c", "") is None
    cache = Cache("calls.sqlite")
    cache.keep([_output(0, PAID), _output(1, PAID, config="other")])
    cache.close()
    assert means_of("t", "c", "calls.sqlite") == Means(1, 100, 10, "calls.sqlite")
    assert means_of("t", "c", "nowhere.sqlite") == Means(2, 150, 15, "--try")
    _run("old", _output(0, PAID, PAID), at=1)
    assert means_of("t", "c", "calls.sqlite") == Means(1, 200, 20, "evalq-runs/old")
    _run("new", _output(0, PAID), _output(1, PAID), at=2)
    _run("newest", _output(0, PAID, config="other"), _output(1, FREE), at=3)
    assert means_of("t", "c", "calls.sqlite") == Means(2, 100, 10, "evalq-runs/new")


def test_calls_about_outputs_count_for_their_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What judges and embedders took stands in the lines that they were asked about."""
    monkeypatch.chdir(tmp_path)
    _run("judged", _output(0, PAID))
    about = {"config": "d", "attempts": [FREE, PAID]}
    line = {
        "target": "t",
        "config": "c",
        "judgements": [{"judge": "j", **about}] * 2,
        "embedding": {"target": "e", **about},
    }
    Path("evalq-runs/judged/judged.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    assert means_of("j", "d", "") == Means(2, 100, 10, "evalq-runs/judged")
    assert means_of("e", "d", "") == Means(1, 100, 10, "evalq-runs/judged")
    assert means_of("t", "c", "") == Means(1, 100, 10, "evalq-runs/judged")


def test_what_is_damaged_counts_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate neither fails nor waits for somebody's files: a pipe, other JSON, half a line."""
    monkeypatch.chdir(tmp_path)
    _run("half", _output(0, PAID))
    with Path("evalq-runs/half/outputs.jsonl").open("ab") as stream:
        stream.write(b'{"target": "t", "con')
    Path("evalq-runs/pipe").mkdir()
    os.mkfifo("evalq-runs/pipe/outputs.jsonl")
    Path("evalq-runs/measured.json").write_text('{"t": {"c": {"calls": -1}}}')
    Path("calls.sqlite").write_text("no database")
    assert means_of("t", "c", "calls.sqlite") == Means(1, 100, 10, "evalq-runs/half")
    assert means_of("t", "other", "calls.sqlite") is None


def test_a_damaged_entry_of_a_cache_is_reported_with_its_file(tmp_path: Path) -> None:
    """Whichever way it is read."""
    cache, prompt = Cache(tmp_path / "cache.sqlite"), Prompt("case", "a", "q")
    cache.keep([msgspec.structs.replace(_output(0, PAID), prompt=prompt.digest)])
    with sqlite3.connect(tmp_path / "cache.sqlite") as there:
        there.execute("update outputs set output = ?", (b"{half",))
    with pytest.raises(WireError, match=r"cache\.sqlite: "):
        cache.find("t", "c", prompt, range(3))
    with pytest.raises(WireError, match=r"cache\.sqlite: "):
        cache.some("t", "c", 1)
    cache.close()
