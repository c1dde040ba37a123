"""What is asked about outputs: once, in any order of kills, with every reply kept that answers the same question."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.model.calls import Attempt, Output
from evalq.producer.cli import main
from evalq.producer.folder.job import RunOptions
from evalq.producer.servers import Servers
from evalq.producer.sweep.judge_stage import JudgeCalls, JudgeSweep, TargetSettings, judge_sweeps
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep
from evalq.producer.viewing.catalogue import KnownRun, Ledger, ProgressReader
from evalq.workers.settings import Settings

CASES = """
defaults: {input: "Say it.", checks: [{rubric: polite, votes: 3}, {prefer: Go.}, {rubric: short, judge: other}]}
cases: [{id: a}, {id: b}]
"""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """A sweep whose calls are over."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.yaml").write_text(CASES)
    request = Request(["cases.yaml"], {}, {"judge": "grader"})
    made = Sweep.start(plugins.get("checks"), request, SweepOptions("chat", 2), RunOptions(out=tmp_path / "run"))
    write(made, [("a", 0, "x"), ("a", 1, "y"), ("b", 0, "x"), ("b", 1, "")])
    return made


def write(sweep: Sweep, outputs: list[tuple[str, int, str]]) -> None:
    """outputs.jsonl; an empty output is a failed call."""
    message = ({"output": text} if text else {"error": "timeout: none"} for _, _, text in outputs)
    lines = [{"case": case, "repeat": repeat, **said} for (case, repeat, _), said in zip(outputs, message, strict=True)]
    sweep.outputs.write_text("".join(json.dumps(line) + "\n" for line in lines))


def calls_of(sweep: Sweep, config: str = "c") -> JudgeCalls:
    """What asks about its outputs, as whoever resumes it makes it."""
    assert sweep.stage is not None
    return JudgeCalls(sweep, sweep.stage, None, lambda targets: dict.fromkeys(targets, TargetSettings(config)))


def answer(sweep: JudgeSweep, most: int | None = None, error: str = "") -> list[int]:
    """Record a reply to calls that have none; returns which these were."""
    prompts = list(sweep.prompts())
    open_calls = [call for call in range(sweep.header.total) if not sweep.recorded.has(call)][:most]
    for call in open_calls:
        prompt, repeat = prompts[call % sweep.header.cases], call // sweep.header.cases
        said = {"error": error} if error else {"output": msgspec.Raw(b'{"pass": true, "better": "A"}')}
        message = (call, prompt.case, "", repeat, prompt.digest, sweep.header.target, "c")
        sweep.recorded.add([Output(*message, attempts=(Attempt(),), **said)])
    return open_calls


def judged(sweep: Sweep, calls: JudgeCalls) -> list[dict[str, list[dict[str, object]]]]:
    """The joined lines."""
    calls.join(sweep.evaluated)
    return [json.loads(line) for line in sweep.evaluated.read_text().splitlines()]


def test_there_is_a_sweep_for_each_judge_and_number_of_votes(sweep: Sweep) -> None:
    """Each output of a call is asked about, a failed one is not; what was asked stands in the lines."""
    calls = calls_of(sweep)
    sweeps = calls.prepare()
    facts = [(each.header.target, each.header.repeats, each.header.cases) for each in sweeps]
    assert facts == [("grader", 1, 6), ("grader", 3, 3), ("other", 1, 3)]
    assert len({each.run for each in sweeps}) == 3
    assert all(each.run.startswith(f"{sweep.run}.") for each in sweeps)
    for each in sweeps:
        answer(each)
    assert [len(line.get("judgements", ())) for line in judged(sweep, calls)] == [6, 6, 6, 0]
    assert [each.run for each in judge_sweeps(sweep.folder)] == [each.run for each in sweeps]


def test_who_resumes_finds_what_was_recorded(sweep: Sweep) -> None:
    """The same outputs are the same sweeps, under the same ids, with the replies that they have."""
    first = calls_of(sweep).prepare()
    done = answer(first[1], 4)
    again = calls_of(sweep).prepare()
    assert [each.run for each in again] == [each.run for each in first]
    assert again[1].recorded.calls() == done


@pytest.mark.parametrize("killed", ["", "before", "between", "after"])
def test_other_outputs_keep_the_replies_to_what_is_asked_again(sweep: Sweep, killed: str) -> None:
    """After a retry another answer is judged anew, and the others not; also where a process dies as it swaps them."""
    for each in calls_of(sweep).prepare():
        answer(each)
    root = sweep.folder.path / "further"
    write(sweep, [("a", 0, "x"), ("a", 1, "changed"), ("b", 0, "x"), ("b", 1, "late")])
    if killed:
        kept = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        calls_of(sweep).prepare()
        _put_back(root / "2", {path: data for path, data in kept.items() if path.parent == root / "2"}, killed)
    again = calls_of(sweep).prepare()
    open_calls = [answer(each) for each in again]
    assert [len(each) for each in open_calls] == [4, 6, 2]
    assert [each.recorded.paid for each in again] == [4, 6, 2]
    assert [len(line["judgements"]) for line in judged(sweep, calls_of_prepared(sweep))] == [6, 6, 6, 6]


def calls_of_prepared(sweep: Sweep) -> JudgeCalls:
    """With its sweeps loaded."""
    calls = calls_of(sweep)
    calls.prepare()
    return calls


def _put_back(place: Path, before: dict[Path, bytes], killed: str) -> None:
    """The files of one sweep as a process leaves them that dies before, between or after its two renames."""
    new, old = place.with_name(f"{place.name}.new"), place.with_name(f"{place.name}.old")
    keep = {"before": place, "between": old, "after": old}[killed]
    if killed != "after":
        place.rename(new)
    shutil.rmtree(keep, ignore_errors=True)
    keep.mkdir()
    for path, data in before.items():
        (keep / path.name).write_bytes(data)


def test_what_failed_is_asked_again_and_nothing_else(sweep: Sweep) -> None:
    """The questions stay the same sweep: a retry drops failed replies alone."""
    calls = calls_of(sweep)
    first = calls.prepare()[2]
    answer(first, 2)
    lost = answer(first, error="timeout: none")
    assert [line["judgements"][-1].get("error") for line in judged(sweep, calls)[:3]] == [None, None, "timeout: none"]
    first.recorded.drop(first.recorded.failed())
    assert answer(calls_of(sweep).prepare()[2]) == lost


def test_outputs_of_one_case_and_repeat_share_the_reply_to_the_same_question(sweep: Sweep) -> None:
    """Recorded outputs may have a line twice: it is paid once, and both lines are judged alike."""
    write(sweep, [("a", 0, "x"), ("a", 0, "x"), ("a", 0, "z")])
    calls = calls_of(sweep)
    sweeps = calls.prepare()
    assert [each.header.cases for each in sweeps] == [4, 2, 2]
    for each in sweeps:
        answer(each)
    lines = judged(sweep, calls)
    assert lines[0] == lines[1] != lines[2]


def test_no_output_leaves_nothing_to_ask(sweep: Sweep) -> None:
    """Sweeps that were begun for outputs that are gone, go; the lines stay as they are."""
    calls_of(sweep).prepare()
    write(sweep, [("a", 0, "")])
    assert sweep.stage is not None
    calls = JudgeCalls(sweep, sweep.stage, None, lambda targets: pytest.fail(f"{targets} are waited for"))
    assert calls.prepare() == []
    assert judge_sweeps(sweep.folder) == []
    calls.join(sweep.evaluated)
    assert sweep.evaluated.read_bytes() == sweep.outputs.read_bytes()


@pytest.mark.parametrize("ended", ["done", "cancelled", "retried"])
def test_replies_of_an_earlier_run_are_taken(sweep: Sweep, tmp_path: Path, ended: str) -> None:
    """Where the question is the same word for word, under the same settings: another answer is judged anew.

    A run that was cancelled as it asked has joined nothing; of one that is retried both are there.
    """
    calls = calls_of(sweep)
    for each in calls.prepare():
        answer(each)
    calls.join(sweep.evaluated)
    first_line = json.loads(sweep.evaluated.read_text().splitlines()[0])
    if ended == "done":
        shutil.rmtree(sweep.folder.path / "further")
    elif ended == "cancelled":
        sweep.evaluated.unlink()
    live = SweepOptions("chat", 2, reuse=(str(sweep.folder.path),))
    later = Sweep.start(sweep.evaluator, sweep.request, live, RunOptions(out=tmp_path / "later"))
    write(later, [("a", 0, "x"), ("a", 1, "changed"), ("b", 0, "x"), ("b", 1, "late")])
    sweeps = calls_of(later).prepare()
    assert all(each.given_before for each in sweeps)
    for each in sweeps:
        assert not [output for some in each.recorded_elsewhere("another") for output in some]
        for some in each.recorded_elsewhere("c"):
            each.recorded.add(some, cached=True)
    assert [len(answer(each)) for each in sweeps] == [4, 6, 2]
    joined = judged(later, calls_of_prepared(later))
    assert joined[0]["judgements"] == first_line["judgements"]


def test_a_sweep_that_cannot_be_resumed_has_its_outputs_written_down(
    sweep: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed while it called, and begun by other code or about other cases: the file that is named is there."""
    sweep.outputs.unlink()
    prompt = next(sweep.prompts())
    output = msgspec.Raw(b'"paid for"')
    sweep.recorded.add([Output(0, prompt.case, "", 0, prompt.digest, "chat", "c", output, attempts=(Attempt(),))])
    Path("cases.yaml").write_text(CASES.replace("short", "long"))
    with sweep.folder.driving():
        pass  # what began it drives no more
    assert main(["resume", "run"]) == 2
    assert "evaluate what was recorded: --outputs run/outputs.jsonl" in capsys.readouterr().err
    (line,) = Path("run/outputs.jsonl").read_text().splitlines()
    assert json.loads(line)["output"] == "paid for"


def test_a_viewer_tells_of_both_stages(sweep: Sweep) -> None:
    """By the folder alone: what is recorded, paid for or taken over, and of the calls about outputs so many."""
    sweep.recorded.add([Output(0, "a", "", 0, "p", "chat", "c", msgspec.Raw(b"1"), attempts=(Attempt(),))], cached=True)
    with Servers(Settings()) as servers:
        standings, known = ProgressReader(Ledger(servers)), KnownRun("run", sweep.run, folder=sweep.folder)
        assert standings.of(known).facts == (("Answers recorded", "1"),)
        first, *_, last = calls_of(sweep).prepare()
        answer(first, 2)
        answer(last)
        assert standings.of(known).facts == (("Answers recorded", "1"), ("About the outputs", "5 of 18"))
        answer(first)
        assert standings.of(known).line == "answers recorded 1, about the outputs 9 of 18"
