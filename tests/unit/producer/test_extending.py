"""What can be extended: a finished sweep, by something that it has not; anything else is refused with what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, UsageError, WireError
from evalq.evalcore.model.calls import Attempt, Output, StopNote
from evalq.evalcore.model.life import RunState
from evalq.evalcore.version import code_version
from evalq.producer.cli import main
from evalq.producer.folder.call_log import RecordedOutputs
from evalq.producer.folder.job import RunExistsError, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.extension import Extension
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.reuse import SourceRun
from evalq.producer.sweep.sweep import Sweep
from tests.agents.server import write_golden


@pytest.fixture
def sweep(here: Path) -> Sweep:
    """One of two cases, three times each, all answered."""
    write_golden(here / "golden.json", {"A": {}, "B": {}})
    request = Request(["golden.json"], {}, {})
    made = Sweep.start(plugins.get("vs"), request, SweepOptions("chat", 3), RunOptions(out=here / "a"))
    prompts = list(made.prompts())
    with made.folder.driving():
        made.recorded.add([_output(call, prompts[call % 2].case, prompts[call % 2].digest) for call in range(6)])
        made.write_outputs()
    return made


def _output(call: int, case: str, prompt: str, config: str = "k") -> Output:
    answer = msgspec.Raw(b'{"n": 1.50}')
    return Output(call, case, "agent", call // 2, prompt, "chat", config, answer, attempts=(Attempt(prompt_tokens=3),))


def _state(sweep: Sweep, *states: RunState) -> RunFolder:
    for state in states:
        sweep.folder.note(state=state)
    return sweep.folder


STATES: list[tuple[tuple[RunState, ...], str]] = [
    (("calling",), "this one is calling; resume it with: evalq resume"),
    (("interrupted",), "this one is interrupted; resume it with"),
    (("detached",), "this one is detached; wait for its report with: evalq watch"),
    (("cancelled",), "this one is cancelled; start another"),
    (("spent",), "this one is spent; resume it"),
    (("called", "open", "done", "retrying"), "this one is retrying; resume it"),
]


@pytest.mark.parametrize(("states", "told"), STATES, ids=[states[-1] for states, _ in STATES])
def test_a_run_that_is_not_finished_is_not_extended(sweep: Sweep, states: tuple[RunState, ...], told: str) -> None:
    """It says how it stands, and what to do first."""
    with pytest.raises(UsageError, match=f"only a finished run is extended, and {re.escape(told)}"):
        Extension(10).begin(_state(sweep, *states), RunOptions(out=Path("b")))
    assert not Path("b").exists()


def test_only_more_is_an_extension(sweep: Sweep) -> None:
    """As many repeats or fewer of the same are none; nor is what a run without calls or of mixed settings asks."""
    folder = _state(sweep, "called", "open", "done")
    for repeats in (None, 3, 2):
        with pytest.raises(UsageError, match="each case was asked 3 times: more"):
            Extension(repeats).begin(folder, RunOptions(out=Path("b")))
    more = Extension(5).begin(folder, RunOptions(out=Path("b")))
    assert (more.header.total, more.header.asked["extends"], more.live.config) == (10, sweep.run, "k")
    with pytest.raises(RunExistsError):
        Extension(5).begin(folder, RunOptions(out=Path("b")))
    lines = sweep.outputs.read_bytes()
    sweep.outputs.write_bytes(lines.replace(b'"config":"k"', b'"config":"other"', 1))
    with pytest.raises(UsageError, match="its answers are of several settings of 'chat'"):
        Extension(5).begin(folder, RunOptions(out=Path("c")))
    assert Extension(5, "other").begin(folder, RunOptions(out=Path("d"))).live.reuse == ()
    sweep.outputs.write_bytes(lines[:-9])
    with pytest.raises(WireError, match=r"outputs\.jsonl:6: not a recorded output: "):
        Extension(5).begin(folder, RunOptions(out=Path("c")))
    sweep.outputs.write_bytes(b"")
    with pytest.raises(UsageError, match=r"outputs\.jsonl: no output is recorded there"):
        Extension(5).begin(folder, RunOptions(out=Path("c")))
    sweep.outputs.unlink()
    with pytest.raises(UsageError, match="there is nothing to extend"):
        Extension(5).begin(folder, RunOptions(out=Path("c")))


def test_a_budget_that_ended_it_may_be_spent_again(sweep: Sweep) -> None:
    """To as many repeats, since not all of them were asked."""
    folder = _state(sweep, "called", "open", "done")
    sweep.outputs.write_bytes(b"".join(sweep.outputs.read_bytes().splitlines(keepends=True)[:4]))
    assert Extension(max_calls=2).begin(folder, RunOptions(out=Path("b"))).live.max_calls == 2


def test_cases_that_changed_are_named_or_refused(sweep: Sweep) -> None:
    """A file of then and a file of now are two questions."""
    folder = _state(sweep, "called", "open", "done")
    write_golden(Path("golden.json"), {"A": {}, "B": {}, "C": {}})
    with pytest.raises(ConfigError, match=r"golden\.json: not what it was"):
        Extension(5).begin(folder, RunOptions(out=Path("b")))
    assert Extension(cases=["golden.json"]).begin(folder, RunOptions(out=Path("b"))).header.cases == 3


def test_outputs_are_taken_where_all_of_it_is_the_same(sweep: Sweep) -> None:
    """Case, prompt, repeat, target and settings; never a failure that was not the agent's."""
    prompts, giver = list(sweep.prompts()), SourceRun("a")

    def taken(live: SweepOptions, config: str = "k") -> list[int]:
        return [output.call for some in giver.taken(prompts, live, config) for output in some]

    assert taken(SweepOptions("chat", 9)) == [0, 2, 4, 1, 3, 5]
    assert taken(SweepOptions("chat", 2)) == [0, 2, 1, 3]
    assert taken(SweepOptions("other", 9)) == []
    assert (taken(SweepOptions("chat", 9), "other"), giver.otherwise) == ([], 6)
    lines = [json.loads(line) for line in sweep.outputs.read_text().splitlines()]
    for line, error in zip(lines, ["timeout: slow", "bad_output: none", "server: down"], strict=False):
        del line["output"]
        line["error"] = error
    lines[5]["prompt"] = "another"
    sweep.outputs.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert taken(SweepOptions("chat", 9)) == [2, 1, 3]
    assert taken(SweepOptions("chat", 9, extends=giver.run)) == [0, 2, 4, 1, 3]
    sweep.outputs.write_text('{"case": "A"}\n')
    with pytest.raises(WireError, match=r"outputs\.jsonl:1: a recorded output is not what evalq writes"):
        taken(SweepOptions("chat", 9))


def test_an_output_is_the_same_after_its_line() -> None:
    """To the byte, with numbers as the agent wrote them."""
    failed = msgspec.structs.replace(_output(3, "A", "p"), output=msgspec.Raw(b"null"), error="refused: no", text="no")
    for output in (_output(3, "A", "p"), failed):
        again = Output.of_line(output.line())
        assert msgspec.structs.replace(again, call=3).line() == output.line()
        assert Output.of_line(output.line(StopNote("when-decided", 5))).line() == output.line()


def test_what_was_taken_is_reported_by_giver_also_after_a_restart(here: Path) -> None:
    """And is the run's own once it was made anew."""
    log = RecordedOutputs(here / "calls.jsonl", 6)
    log.add([_output(0, "A", "p"), _output(1, "B", "p")], cached=True, of="one")
    log.add([_output(2, "A", "p")], cached=True)
    log.add([_output(3, "B", "p")])
    log.drop([1])
    for each in (log, RecordedOutputs(here / "calls.jsonl", 6)):
        assert (+each.reused, each.paid, each.count) == ({"one": 1, "": 1}, 1, 3)
    log.add([_output(1, "B", "p")])
    assert (+RecordedOutputs(here / "calls.jsonl", 6).reused, log.paid) == ({"one": 1, "": 1}, 2)


def test_a_sweep_of_another_code_is_not_said_to_be_resumable(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In its calls, where it has no plan yet that would tell whose it is."""
    assert main(["status", "a"]) == 0
    assert "resume it with: evalq resume a" in capsys.readouterr().out
    monkeypatch.setattr("evalq.producer.folder.manifest.code_version", lambda: "0" * 12)
    for command, code in ((["status", "a"], 0), (["watch", "a"], 3)):
        assert main(command) == code
        said = "".join(capsys.readouterr())
        assert f"begun by evalq code {code_version()}, this is {'0' * 12}: resume it with that version" in said
        assert "evalq resume" not in said
    monkeypatch.setattr("evalq.producer.sweep.sweep.code_version", lambda: "0" * 12)
    with pytest.raises(ConfigError, match=r"or evaluate what it recorded: --outputs .*outputs\.jsonl\Z"):
        Sweep.load(sweep.folder)
    (sweep.folder.path / "outputs.jsonl").unlink()  # which is made when the calls are over
    with pytest.raises(ConfigError, match=r"resume it with that version, or start a new one\Z"):
        Sweep.load(sweep.folder)
    (sweep.folder.path / "sweep.json").write_text("{")
    assert main(["status", "a"]) == 0
    assert "resume it with: evalq resume a" in capsys.readouterr().out, "a damaged one tells nothing"
