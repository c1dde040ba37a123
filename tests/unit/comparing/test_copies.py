"""Recorded outputs that are the baseline's in another order, in other files, or as other repeats are found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.comparing.conftest import Command, Ended

CASES = 80
Line = dict[str, object]
COPIES: dict[str, Callable[[list[Line]], list[list[Line]]]] = {
    "reversed": lambda lines: [lines[::-1]],
    "rotated": lambda lines: [lines[7:] + lines[:7]],
    "in two files": lambda lines: [lines[:50], lines[50:]],
    "as other repeats": lambda lines: [[{**line, "repeat": 7 - int(str(line["repeat"]))} for line in lines]],
}


@pytest.fixture
def evaluated(here: Path, command: Command) -> Callable[[str, list[list[Line]]], str]:
    """Evaluates files of outputs; gives the folder of the run."""
    cases = [{"id": f"c{n}", "input": f"say {n}", "checks": [{"contains": "yes"}]} for n in range(CASES)]
    (here / "cases.json").write_text(json.dumps({"cases": cases}))

    def run(name: str, files: list[list[Line]]) -> str:
        words: list[str] = []
        for number, lines in enumerate(files):
            (here / f"{name}{number}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            words += ["--outputs", f"{name}{number}.jsonl"]
        done = command("checks", "cases.json", *words, "--inline", "-q", "--format", "none", "--out", name)
        assert done.code == 0, done.stderr
        return name

    return run


@pytest.fixture
def gate(here: Path, command: Command) -> Callable[[str], tuple[int, str]]:
    (here / "policy.yaml").write_text("gates: [{metric: checks.pass_rate, max_drop: 0.1}]")

    def decide(cand: str) -> tuple[int, str]:
        done = command("gate", cand, "--policy", "policy.yaml", "--baseline", "base")
        return done.code, done.stdout

    return decide


def outputs(repeats: Iterable[int], text: str) -> list[Line]:
    return [{"case": f"c{n}", "repeat": at, "output": text.format(n, at)} for n in range(CASES) for at in repeats]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_the_baseline_s_lines_are_never_go(
    copied: str, evaluated: Callable[[str, list[list[Line]]], str], gate: Callable[[str], tuple[int, str]]
) -> None:
    """Lines of texts that all differ."""
    lines = outputs(range(3), "yes {} {}")
    evaluated("base", [lines])
    code, said = gate(evaluated("copy", COPIES[copied](lines)))
    assert code == 4, said
    assert "in another order" in said


def test_lines_that_do_not_tell_answers_apart_are_copies_where_all_of_them_are_there(
    evaluated: Callable[[str, list[list[Line]]], str], gate: Callable[[str], tuple[int, str]]
) -> None:
    """One answer a case, and all alike: the very lines are the baseline's; with another line they are not."""
    lines = outputs([0], "yes")
    evaluated("base", [lines])
    code, said = gate(evaluated("copy", [lines[::-1]]))
    assert (code, "line for line in another order" in said) == (4, True), said
    assert gate(evaluated("own", [outputs([0], "yes!")]))[0] == 0


def test_equal_answers_of_an_agent_s_own_are_no_copies(
    evaluated: Callable[[str, list[list[Line]]], str], gate: Callable[[str], tuple[int, str]]
) -> None:
    """Two runs that answer alike, each time with other words beside: what is recorded of them is the same."""
    evaluated("base", [[{**line, "id": "b"} for line in outputs(range(3), "yes")]])
    code, said = gate(evaluated("own", [[{**line, "id": "c"} for line in outputs(range(3), "yes")]]))
    assert code == 0, said


def test_what_a_folder_may_not_choose_is_not_read(
    here: Path,
    evaluated: Callable[[str, list[list[Line]]], str],
    gate: Callable[[str], tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A run folder from elsewhere names a file elsewhere: its lines stay unread, and the rest is compared."""
    lines = outputs([0], "yes")
    evaluated("base", [lines])
    evaluated("copy", [lines[::-1]])
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (here / "copy0.jsonl").rename(elsewhere / "copy0.jsonl")
    facts = json.loads((here / "copy" / "run.json").read_text())
    facts["run"] = "checks-0000000000"
    facts["sources"][0]["path"] = str(elsewhere / "copy0.jsonl")
    (here / "copy" / "run.json").write_text(json.dumps(facts))
    assert gate("copy")[0] == 0
    assert json.loads((here / "copy" / "cases.json").read_text())["lines"] == []


LOST: dict[str, object] = {"error": "timeout", "attempts": [{"kind": "timeout", "latency_seconds": 1.0}]}
UNUSABLE: dict[str, tuple[dict[str, object], str]] = {
    "an error that somebody recorded": ({"error": "the agent crashed"}, "The candidate gave no usable answer for 3"),
    "nothing at all": ({}, "The candidate gave no usable answer for 3"),
    "what a replay says was refused": (
        {"error": "no", "attempts": [{"kind": "refused", "latency_seconds": 1.0}]},
        "The candidate gave no usable answer for 3",
    ),
    "what a replay says was lost": (LOST, "The server, the network or a worker lost 3"),
}


@pytest.mark.parametrize("what", UNUSABLE)
@pytest.mark.parametrize("count", [3, 60])
def test_recorded_outputs_without_an_answer_were_lost_by_nobody(
    what: str,
    count: int,
    evaluated: Callable[[str, list[list[Line]]], str],
    gate: Callable[[str], tuple[int, str]],
) -> None:
    """Few of them leave it to the demands, at the worst; many are a difference. What a replay lost stays lost."""
    keys, said = UNUSABLE[what]
    evaluated("base", [outputs(range(3), "yes {} {}")])
    lines = outputs(range(3), "yes, {} {}")
    worse = [
        {**{key: value for key, value in line.items() if key != "output"}, **keys} if n < count else line
        for n, line in enumerate(lines)
    ]
    code, text = gate(evaluated("worse", [worse]))
    if count == 3:
        assert (code, said in text) == (0, False), text
    else:
        assert (code, said.replace(" 3", " 60") in text) == (3 if keys is LOST else 1, True), text


def called(n: int, at: int, seed: int) -> Line:
    attempt = {"latency_seconds": 0.1 + n / 1000 + at / 7 + seed / 11}
    return {"case": f"c{n}", "repeat": at, "output": "yes", "attempts": [attempt]}


def compared(done: Ended) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["measures"]
    return found


ONCE = [called(n, at, 1) for n in range(CASES) for at in range(2)]
DOUBLED: dict[str, tuple[list[list[Line]], str]] = {
    "under two names": ([ONCE, ONCE], "1 file with the bytes of another one"),
    "in another order": ([ONCE, ONCE[::-1]], "1 file with the lines of another one, in another order"),
    "and more": ([ONCE, ONCE + [called(n, 2, 2) for n in range(CASES)]], "at least 160 answers in several files"),
    "with another id": ([ONCE, [{**line, "id": "x"} for line in ONCE]], "at least 160 answers in several files"),
}


@pytest.mark.parametrize("how", DOUBLED)
def test_answers_that_count_twice_decide_nothing(
    how: str,
    evaluated: Callable[[str, list[list[Line]]], str],
    gate: Callable[[str], tuple[int, str]],
    command: Command,
) -> None:
    """Neither for a gate nor for a comparison, on whichever side; and each says so."""
    files, said = DOUBLED[how]
    evaluated("base", [[called(n, at, 3) for n in range(CASES) for at in range(2)]])
    evaluated("own", [ONCE])
    evaluated("doubled", files)
    assert gate("own")[0] == 0
    code, text = gate("doubled")
    assert (code, f"the candidate has {said}" in text) == (4, True), text
    for words, side in ((("own", "doubled"), "candidate"), (("doubled", "base"), "baseline")):
        done = command("compare", *words, "--json")
        found = compared(done)
        assert {each["verdict"] for each in found} == {"inconclusive"}, found
        assert f"The {side} has {said}" in found[0]["copies"][0]
        assert f"The {side} has {said}" in command("compare", *words).stdout
    assert {each["verdict"] for each in compared(command("compare", "base", "own", "--json"))} == {"same"}


def test_a_file_that_is_named_twice_is_evaluated_once_or_reported(
    here: Path,
    evaluated: Callable[[str, list[list[Line]]], str],
    gate: Callable[[str], tuple[int, str]],
    command: Command,
) -> None:
    """Twice in the arguments, and once by a link."""
    evaluated("base", [[called(n, at, 3) for n in range(CASES) for at in range(2)]])
    evaluated("own", [ONCE])
    (here / "link.jsonl").symlink_to(here / "own0.jsonl")
    for number, files in enumerate((("own0.jsonl", "own0.jsonl"), ("own0.jsonl", "link.jsonl"))):
        words = [word for file in files for word in ("--outputs", file)]
        done = command("checks", "cases.json", *words, "--inline", "-q", "--format", "none", "--out", f"twice{number}")
        if done.code == 2:
            continue
        code, text = gate(f"twice{number}")
        assert (code, "with the bytes of another one" in text) == (4, True), text
