"""Which run is meant: a path first, then a baseline, then a run's id; and what is said where nothing is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import ascii_letters, digits

import msgspec
import pytest

import evalq
from evalq.evalcore.compare.summary import RunCases
from evalq.evalcore.errors import UsageError
from evalq.producer.comparing.baselines import Baselines
from evalq.producer.comparing.operands import operand, partner
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from evalq.producer.servers import Servers
from evalq.workers.settings import Settings
from tests.integration.harness import Server, running_server
from tests.unit.comparing.conftest import Command, Made


@pytest.fixture
def nobody() -> Servers:
    """No server."""
    return Servers(Settings())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("server")) as one:
        yield one


def unnamed(runs: Iterable[RunCases]) -> list[RunCases]:
    """The runs without what their user calls them, which depends on how they were named."""
    return [msgspec.structs.replace(run, named="") for run in runs]


def test_every_way_to_name_a_run_means_the_same(made: Made, here: Path, nobody: Servers) -> None:
    """Its folder, its report, its cases, its id, a baseline."""
    folder = made("evalq-runs/mine", [("a", True), ("b", False)])
    run = cases_of(RunFolder.existing(folder))
    Baselines(nobody).approve("main", run)
    for name in (str(folder), f"{folder}/report.json", f"{folder}/cases.json", "mine", run.run, "main"):
        (found,) = operand(name, nobody)
        assert unnamed([found]) == [run], name
        assert found.shown == ("main" if name == "main" else "evalq-runs/mine")


def test_a_file_that_is_none_and_a_name_that_is_none_say_what_to_do(made: Made, here: Path, nobody: Servers) -> None:
    """Each with what would do."""
    (here / "lone").mkdir()
    (here / "lone" / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="a report alone does not say how each case went"):
        operand("lone/report.json", nobody)
    with pytest.raises(UsageError, match=r"'nothing' is not a run folder, .* in \./evalq-runs"):
        operand("nothing", nobody)


def test_a_pipe_in_place_of_a_run_is_reported_as_one(here: Path, nobody: Servers) -> None:
    """Also that of ``<(command)``: "no file" it was, of what its user sees is there. Nobody waits for its other end."""
    os.mkfifo("pipe")
    reading, writing = os.pipe()
    for name in ("pipe", f"/dev/fd/{reading}"):
        with pytest.raises(UsageError, match=f"{name}: not a plain file .* write it to a file, and name that"):
            operand(name, nobody)
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", ".hidden", "x" * 65, "a\n"])
def test_a_baseline_s_name_is_no_path(name: str, made: Made, here: Path, nobody: Servers) -> None:
    """Nothing is written for it."""
    run = cases_of(RunFolder.existing(made("run", [("a", True)])))
    before = sorted(here.rglob("*"))
    with pytest.raises(UsageError, match="cannot name a baseline"):
        Baselines(nobody).approve(name, run)
    assert sorted(here.rglob("*")) == before
    assert Baselines(nobody).known(name) == []


def test_a_target_s_name_stays_in_its_folder(made: Made, here: Path, nobody: Servers) -> None:
    """Whatever a targets file calls it."""
    run = cases_of(RunFolder.existing(made("run", [("a", True)])))
    run.target = "../../etc/passwd"
    path = Baselines(nobody).approve("main", run)
    assert path.resolve().parent == here / "evalq-baselines" / "main"
    assert unnamed(Baselines(nobody).known("main")) == [run]


def test_the_ledger_keeps_baselines_for_every_machine(
    made: Made, here: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no file, and over one that is older; forgetting drops both."""
    with Servers(Settings(broker=server.url)) as servers:
        old = cases_of(RunFolder.existing(made("old", [("a", True)])))
        new = cases_of(RunFolder.existing(made("new", [("a", True), ("b", True)])))
        Baselines(Servers(Settings())).approve("main", old)
        elsewhere = Baselines(servers, here / "elsewhere")
        elsewhere.approve("main", new)
        assert unnamed(Baselines(servers).known("main")) == [new]
        assert Baselines(servers, here / "third").names() == ["main"]
        assert list(Baselines(servers).forget("main")) == [
            "evalq-baselines/main/verification.json",
            "main in the ledger",
        ]
        assert Baselines(servers).names() == []
        assert not (here / "evalq-baselines" / "main").exists()


def test_a_run_s_partner_is_of_its_evaluator_and_target(made: Made, here: Path, nobody: Servers) -> None:
    """By target only where several could be meant, so that a candidate target can be compared with the old one."""
    run = cases_of(RunFolder.existing(made("run", [("a", True)])))
    other = cases_of(RunFolder.existing(made("other", [("a", False)])))
    other.target = "b"
    assert partner(run, [other], "main") is other
    third = cases_of(RunFolder.existing(made("third", [("c", False)])))
    assert partner(run, [other, third], "main") is third
    run.evaluator = "vs"
    with pytest.raises(UsageError, match="main has verification, verification@b, and nothing to compare vs"):
        partner(run, [other, third], "main")


def test_commands_list_and_forget(made: Made, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is approved, as lines and as JSON."""
    from evalq.producer.cli import main

    made("run", [("a", True), ("a", False)])
    assert main(["baseline", "set", "main", "run"]) == 0
    assert "main: verification is run" in capsys.readouterr().out
    assert main(["baseline", "list", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["main"]
    assert (listed["evaluator"], listed["cases"], listed["records"]["total"]) == ("verification", 1, 2)
    assert main(["baseline", "forget", "main"]) == 0
    assert main(["baseline", "forget", "main"]) == 2
    assert main(["baseline", "list"]) == 0
    assert "no baseline yet" in capsys.readouterr().err


CHOSEN = ["t[model=a:b]", "t[model=a+b]", "t[model=a-b]", "t[model=a.b]"]


def test_choices_of_other_names_are_other_baselines(made: Made, here: Path, server: Server) -> None:
    """Approving the one does not replace the other, in files and in the ledger."""
    run = cases_of(RunFolder.existing(made("run", [("a", True)])))
    runs = [msgspec.structs.replace(run, run=f"r{number}", target=name) for number, name in enumerate(CHOSEN)]
    for settings in (Settings(), Settings(broker=server.url)):
        with Servers(settings) as servers:
            baselines = Baselines(servers)
            for each in runs:
                baselines.approve("chosen", each)
            known = baselines.known("chosen")
            assert unnamed(sorted(known, key=lambda each: each.run)) == runs
            assert unnamed([partner(each, known, "chosen") for each in runs]) == runs
    assert all(set(path.stem) <= set(ascii_letters + digits + "._@~+-") for path in here.rglob("chosen/*.json"))


@pytest.mark.parametrize("there", ["folder", "run"])
def test_a_path_that_is_called_as_the_baseline_stands_in_for_nothing(
    there: str, made: Made, here: Path, command: Command
) -> None:
    """Comparing and planning took it where the gate took the baseline: another run's, or an error that names none."""
    good = [(str(number), number % 10 > 0) for number in range(12)]
    made("first", good)
    made("cand", good)
    assert command("baseline", "set", "main", "first").code == 0
    before = command("compare", "main", "cand", "--json")
    policy = {"gates": [{"metric": "verification.pass_rate", "max_drop": 0.05}]}
    (here / "policy.yaml").write_text(json.dumps(policy))
    plan = ("gate", "--dry-run", "--policy", "policy.yaml", "--baseline", "main", "--json")
    planned = command(*plan)
    if there == "run":
        made("main", [(str(number), False) for number in range(20)])
    else:
        (here / "main").mkdir()
    done = command("compare", "main", "cand", "--json")
    assert (done.code, done.stdout) == (0, before.stdout)
    assert "main is also a baseline, and evalq uses that; for the file or folder, write ./main" in done.stderr
    assert "taken for" not in before.stderr
    assert command(*plan).stdout == planned.stdout
    assert evalq.compare("main", "cand")["pass_rate"].verdict == json.loads(before.stdout)["measures"][0]["verdict"]
    if there == "run":
        assert command("compare", "./main", "cand", "--json").stdout != before.stdout


def test_a_run_without_any_answer_is_no_baseline(made: Made, here: Path, command: Command) -> None:
    """Nothing can be measured against it, and each later gate would be inconclusive, far from the cause."""
    (here / "lines.jsonl").write_text('{"output": "x"}\n')
    (here / "score.py").write_text("def score(record): raise ValueError('no')\n")
    assert command("score", "score.py", "lines.jsonl", "--out", "dead").code == 5
    ended = command("baseline", "set", "main", "dead")
    assert (ended.code, "has no answer with a verdict" in ended.stderr) == (2, True), ended.stderr
    assert not list(here.glob("evalq-baselines/*/*.json"))
    (here / "lines.jsonl").write_text('{"output": "x"}\n{"output": 1}\n')
    (here / "score.py").write_text("def score(record): return len(record['output']) > 1\n")
    assert command("score", "score.py", "lines.jsonl", "--out", "one").code == 0
    assert command("baseline", "set", "main", "one").code == 0
