"""gate --dry-run: the outlook for a run that nobody has paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.producer.cli import main
from tests.unit.comparing.conftest import Command, Made

POLICY = "gates:\n  - {metric: verification.pass_rate, max_drop: 0.2}\n  - {metric: verification.transcripts, min: 1}\n"


@pytest.fixture
def policy(here: Path) -> str:
    (here / "policy.yaml").write_text(POLICY)
    return "policy.yaml"


def test_a_plan_without_any_run(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Cases and repeats are enough; a number without an interval is said to have no power."""
    assert main(["gate", "--policy", policy, "--dry-run", "--cases", "40", "--repeat", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (power,) = found["powers"]
    chances = {round(each["drop"], 9): each["shares"] for each in power["chances"]}
    assert list(chances) == [0.0, 0.1, 0.2, 0.4, 0.6, 0.8]
    assert all(sum(each.values()) == pytest.approx(1) and len(each) == 4 for each in chances.values())
    assert 0.5 < chances[0.0]["GO"] <= 1
    assert chances[0.6]["NO-GO"] > chances[0.2]["NO-GO"]
    assert power["no_go_from"] == pytest.approx(0.2 + power["suspect_from"])
    assert any("verification.transcripts is no measure of single cases" in note for note in found["notes"])


def test_a_plan_from_a_baseline(policy: str, made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the cases, and says what it is too small for; nothing is counted or written."""
    for name in ("base", "run"):
        made(name, [(f"c{n}", True) for n in range(5) for _ in range(4)])
    assert main(["baseline", "set", "main", "base"]) == 0
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    assert main(["gate", "--policy", policy, "--baseline", "main", "--dry-run", "--repeat", "2"]) == 0
    text = capsys.readouterr().out
    assert "What this gate can tell against main" in text
    assert "the baseline has 5 cases, and the policy needs at least 10" in text
    assert "4 answers a case; approve one with at least four times the candidate's 2" in text
    assert "NO-GO and SUSPECT are decided at an error of 0.0125 each" in text
    assert "First comparison with this baseline" in text
    assert "A new baseline is due at number 20" in text
    assert sorted(Path().rglob("*")) == before
    Path("one.yaml").write_text("gates: [{metric: verification.pass_rate, max_drop: 0.05}]")
    assert main(["gate", "run", "--policy", "one.yaml", "--baseline", "main"]) == 4
    assert main(["gate", "--policy", "one.yaml", "--baseline", "main", "--dry-run", "--repeat", "2"]) == 0
    assert "NO-GO and SUSPECT are decided at an error of 0.00417 each" in capsys.readouterr().out, "the second look's"


@pytest.mark.parametrize("key", ["max_drop", "max"])
def test_a_plan_of_a_demand_off_its_scale_is_refused_as_the_gate_is(
    key: str, made: Made, here: Path, command: Command
) -> None:
    """Before anything is paid for: with the key and what was meant."""
    made("base", [(f"c{n}", True) for n in range(30)])
    (here / "off.yaml").write_text(f"gates: [{{metric: verification.pass_rate, {key}: 5}}]")
    for plan in (["--dry-run", "--baseline", "base"], ["--dry-run", "--cases", "9", "--repeat", "2"]):
        done = command("gate", "--policy", "off.yaml", *plan)
        assert (done.code, done.stdout) == (2, "")
        assert f"verification.pass_rate: {key} 5 is off the scale from 0 to 1" in done.stderr


@pytest.mark.parametrize("name", ["decision.foo", ".", "policy.yaml"])
def test_a_plan_says_what_the_gate_could_not_write(
    policy: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is paid: a name of no format, a folder, the policy itself. Nothing is written, also not there."""
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = ["gate", "--policy", policy, "--dry-run", "--cases", "40", "--repeat", "5"]
    assert main([*plan, "-o", "fine.json", "-o", name]) == 2
    found = capsys.readouterr()
    assert (found.out, f"-o {name}: " in found.err) == ("", True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_without_a_plan_it_says_what_to_name(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And a gate without a run says so, too."""
    assert main(["gate", "--policy", policy, "--dry-run"]) == 2
    assert "name what is planned: --baseline NAME, or --cases N and --repeat N" in capsys.readouterr().err
    assert main(["gate", "--policy", policy]) == 2
    assert "name the run to gate" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [("--targets", "none.yaml"), ("--calls", "3"), ("--base-target", "old")])
def test_what_is_for_asking_again_is_refused_where_nobody_is_asked(
    policy: str, asked: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rather than left aside. A variable, which may be there for other commands, is left aside."""
    plan = ["gate", "--policy", policy, "--dry-run", "--cases", "40", "--repeat", "5"]
    gate = ["gate", "nothing-here", "--policy", policy, "-o", "gate.json"]
    for command in (plan, gate):
        assert main([*command, *asked]) == 2
        assert f"{asked[0]} goes with --confirm" in capsys.readouterr().err
    assert f"{asked[0]} goes with --confirm" in Path("gate.json").read_text()
    assert main([*plan, *asked, "--confirm"]) == 0
    monkeypatch.setenv("EVALQ_" + asked[0][2:].replace("-", "_").upper(), asked[1])
    assert main(plan) == 0


@pytest.mark.parametrize("planned", [("--cases", "40"), ("--repeat", "5"), ("--rate", "0.5")])
def test_what_is_for_a_plan_is_refused_where_a_gate_decides(
    policy: str, planned: tuple[str, str], made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be a look at the baseline, which is counted, where no more than a plan was wanted."""
    made("run", [(f"c{n}", True) for n in range(10)])
    assert main(["gate", "run", "--policy", policy, *planned]) == 2
    assert f"{planned[0]} goes with --dry-run" in capsys.readouterr().err
