"""What a gate writes for machines and pages: valid, within their limits, and hostile text stays text."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from evalq.evalcore.compare.decision import Check, GateDecision, Quarantined
from evalq.evalcore.compare.gate import decide
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.compare.summary import CaseColumn, CaseSummary, RunCases, RunUsage
from evalq.evalcore.contract.measures import Measure
from evalq.evalcore.errors import UsageError
from evalq.producer.cli import main
from evalq.producer.comparing.decision_files import (
    check_decision_output,
    errors_in_earlier_files,
    errors_written,
    write_decision,
)
from evalq.producer.comparing.html import decision_html
from evalq.producer.suites.summary import MatrixRow, MeasureMean
from tests.deploy.programs import CHECKERS, program
from tests.unit.compare import made as summaries
from tests.unit.comparing.conftest import BAD, GOOD, Command

FILES = ("junit.xml", "summary.md", "comment.md", "annotations.txt", "badge.json", "badge.svg", "gate.json")
HOSTILE = (
    "<script>alert(1)</script>",
    "]]><x/>",
    "::error file=a.py::owned",
    "\x1b[31mred\x1b]0;title\x07",
    "=cmd|' /C calc'!A0",
    "abc\u202etxt.exe",
    "a|b\n# heading\n\n![x](http://e.example/i.png)",
    "\x00\x0b\ufffe",
    "%0A::stop-commands::x",
    "&amp;&#10;\"'",
)


def run_of(ids: Sequence[str], passed: Sequence[int], of: int = 4, missing: Sequence[int] | None = None) -> RunCases:
    measure = Measure("pass_rate")
    total = [float(number) for number in passed]
    column = CaseColumn([of if not (missing and missing[n]) else 0 for n in range(len(ids))], total, total)
    cases = CaseSummary([measure], list(ids), list(missing or [0] * len(ids)), {"pass_rate": column})
    return RunCases(
        run="vs-1", evaluator="vs", version="1", specification="s", report="r", records={"total": len(ids)}, cases=cases
    )


def decision_of(cases: Sequence[str], reason: str = "seen") -> GateDecision:
    checks = (
        Check("vs.pass_rate", "falls by at most 0.05", "critical", "NO-GO", reason, -0.2, -0.3, -0.1, 0.001, (*cases,)),
        Check("vs.usage.cost", "at most 3", "advisory", "NO-GO", reason, 4.0),
        Check("vs.pass_rate", "at least 0.9", "supporting", "INCONCLUSIVE", reason),
    )
    held = tuple(Quarantined("vs", case, at % 2 == 0, reason, reason, "2030-01-01") for at, case in enumerate(cases))
    return GateDecision("NO-GO", checks, (reason,), ("vs-1",), "main", held)


def written(folder: Path, decision: GateDecision, runs: Sequence[RunCases]) -> dict[str, bytes]:
    for name in FILES:
        write_decision([folder / name], decision, runs)
    return {name: (folder / name).read_bytes() for name in FILES}


@cache
def _checker() -> subprocess.Popen[str]:
    """A process that checks files for all tests here; it ends with this one."""
    command = [CHECKERS / "python", Path(__file__).with_name("xml_schema.py"), CHECKERS / "junit-10.xsd"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def validated(path: Path) -> ElementTree.Element:
    """Against the schema that Jenkins' xUnit plug-in reads by."""
    program("xmlschema-validate")  # what is installed with it checks
    checker = _checker()
    assert checker.stdin is not None
    assert checker.stdout is not None
    checker.stdin.write(f"{path}\n")
    checker.stdin.flush()
    assert checker.stdout.readline() == "valid\n"
    return ElementTree.parse(path).getroot()  # noqa: S314 - a file of our own


def test_hostile_text_stays_text_in_every_format(tmp_path: Path) -> None:
    """Names of cases and reasons that a page, a terminal, a runner or a spreadsheet would obey."""
    runs = [run_of(HOSTILE, [0] * len(HOSTILE))]
    files = written(tmp_path, decision_of(HOSTILE, " ".join(HOSTILE)), runs)
    for name, data in files.items():
        text = data.decode()
        assert "\x1b" not in text, name
        if name != "gate.json":  # data, for programs
            assert "\u202e" not in text, name
        if name not in ("gate.json", "annotations.txt"):  # GitHub shows these as text, a page does not
            assert "<script>" not in text, name
    lines = files["annotations.txt"].decode().splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines), lines
    assert not any(line.startswith("::") for line in files["summary.md"].decode().splitlines())
    assert "](http" not in files["comment.md"].decode().replace("\\]", "")
    names = [case.get("name") for case in validated(tmp_path / "junit.xml").iter("testcase")]
    assert len(names) == len(set(names)) >= len(HOSTILE)


def test_a_suites_matrix_stands_before_its_failed_cases(tmp_path: Path) -> None:
    """As a table in Markdown and as data in JSON, its labels as they are; other formats are what they were."""
    found = MeasureMean(0.5, 0.25, 0.75)
    rows = {"sup": [MatrixRow(f"sup[prompt={n}]", {"prompt": text}, "r", {"pass_rate": found}, 8, 1, 2, 0.25)
                    for n, text in enumerate(HOSTILE)]}  # fmt: skip
    runs, decision = [run_of(["lost"], [0])], decision_of([])
    plain = written(tmp_path, decision, runs)
    for name in FILES:
        write_decision([tmp_path / name], decision, runs, matrices=rows)
    files = {name: (tmp_path / name).read_bytes() for name in FILES}
    assert {name for name in FILES if files[name] != plain[name]} == {"summary.md", "comment.md", "gate.json"}
    assert len(json.loads(files["gate.json"])["matrices"]["sup"]) == len(HOSTILE)
    for name in ("summary.md", "comment.md"):
        text = files[name].decode()
        assert "<script>" not in text
        assert "\x1b" not in text
        table = text[text.index("\n## sup\n") : text.index("## Of 1 cases")]
        assert table.count("| 0.5 (0.25 to 0.75) | 8 (2 reused) | 1 | 0.25 | r |") == len(HOSTILE)


def test_the_schema_is_one_that_refuses(tmp_path: Path) -> None:
    """The negative control."""
    (tmp_path / "odd.xml").write_text('<testsuites><testsuite name="a"><surprise/></testsuite></testsuites>')
    with pytest.raises(AssertionError):
        validated(tmp_path / "odd.xml")


def test_ten_thousand_cases_are_within_what_readers_take(tmp_path: Path) -> None:
    """GitLab: 30 MB, 255 characters a name, no name twice. GitHub: 1 MiB a step, ten annotations of a kind."""
    ids = [f"{'long name ' * 40}{number}" for number in range(10_000)]
    runs = [run_of(ids, [number % 3 for number in range(10_000)])]
    files = written(tmp_path, decision_of(ids[:20]), runs)
    assert len(files["junit.xml"]) < 30_000_000
    root = validated(tmp_path / "junit.xml")
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names)) >= 10_000
    assert max(len(name or "") for _, name in names) <= 255
    failures = sum(1 for _ in root.iter("failure"))
    assert failures == int(root.get("failures") or 0)
    assert len(files["summary.md"]) < 1 << 20
    assert b"left out" in files["summary.md"]
    assert len(files["comment.md"].decode()) < 65_536
    lines = files["annotations.txt"].decode().splitlines()
    assert all(sum(line.startswith(f"::{kind} ") for line in lines) <= 10 for kind in ("error", "warning", "notice"))


def test_the_same_decision_gives_the_same_bytes(tmp_path: Path) -> None:
    """No clock, no host."""
    runs = [run_of(["a", "b"], [4, 1])]
    (tmp_path / "again").mkdir()
    assert written(tmp_path, decision_of(["b"]), runs) == written(tmp_path / "again", decision_of(["b"]), runs)


def test_a_case_fails_when_an_answer_does_and_errs_when_none_came(tmp_path: Path) -> None:
    """And where the gate lets the run pass, nothing is a failure."""
    runs = [run_of(["kept", "lost", "gone"], [4, 1, 0], missing=[0, 0, 4])]
    write_decision([tmp_path / "junit.xml"], decision_of([]), runs)
    root = validated(tmp_path / "junit.xml")
    states = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert (states["kept"], states["lost"], states["gone"]) == ([], ["failure"], ["error"])
    write_decision([tmp_path / "go.xml"], GateDecision("GO", (), (), ("vs-1",)), runs)
    tags = {child.tag for case in validated(tmp_path / "go.xml").iter("testcase") for child in case}
    assert tags == {"skipped"}


def test_a_case_in_quarantine_is_skipped_and_listed_in_every_format(tmp_path: Path) -> None:
    """With its reason; one that is named there and counts all the same fails as any other."""
    runs = [run_of(["aside", "counts", "fell"], [1, 1, 0])]
    held = (
        Quarantined(
            "vs", "aside", True, "flaky: 30 of 40 answers passed before", "index rebuilt at night", "2030-01-01"
        ),
        Quarantined("vs", "counts", False, "stable: 0 of 90 answers passed before", "somebody thought so"),
        Quarantined("vs", "fell", True, "flaky: 30 of 40 answers passed before", "an index", regressed=True),
    )
    files = written(tmp_path, GateDecision("NO-GO", (), (), ("vs-1",), "", held), runs)
    root = ElementTree.fromstring(files["junit.xml"])  # noqa: S314 - of our own
    states = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert (states["aside"], states["counts"], states["fell"]) == (["skipped"], ["failure"], ["failure"])
    assert states["vs.quarantine: aside"] == states["vs.quarantine: counts"] == ["skipped"]
    for name in ("junit.xml", "summary.md", "comment.md", "annotations.txt", "gate.json"):
        text = files[name].decode()
        for said in ("index rebuilt at night", "30 of 40 answers passed before", "0 of 90 answers passed before"):
            assert said in text, name
    assert "set aside" in files["summary.md"].decode()
    assert "counts all the same" in files["summary.md"].decode()
    assert [each["aside"] for each in json.loads(files["gate.json"])["quarantined"]] == [True, False, True]
    assert "2030-01-01" in decision_html(GateDecision("GO", (), (), ("vs-1",), "", held))


def test_a_file_of_no_format_is_refused_before_anything_is_decided(tmp_path: Path) -> None:
    """With the names there are."""
    with pytest.raises(UsageError, match=r"names end in annotations\.txt"):
        check_decision_output(tmp_path / "gate.docx")


def test_a_name_that_is_no_text_is_reported_in_every_format(here: Path, command: Command) -> None:
    """The error is the one that there is, with its exit code, however its folder's name is spelled."""
    name = os.fsdecode(b"run\xff")
    (here / name).mkdir()
    (here / "policy.yaml").write_text("gates: [{metric: verification.pass_rate, min: 0.7}]")
    done = command("gate", name, "--policy", "policy.yaml", *(word for file in FILES for word in ("-o", file)))
    assert done.code == 2, done
    assert json.loads((here / "gate.json").read_bytes())["exit_code"] == 2
    (error,) = ElementTree.fromstring((here / "junit.xml").read_bytes()).iter("error")  # noqa: S314 - a file of our own
    assert error.get("type") == "UsageError"


def test_one_file_that_cannot_be_written_leaves_none_behind_it_stale(here: Path, command: Command) -> None:
    """The decision is shown all the same, and the error after it."""
    lines = [json.dumps({"id": f"t{n}", "actual_output": BAD}) for n in range(20)]
    (here / "t.jsonl").write_text("\n".join(lines) + "\n")
    assert command("verification", "t.jsonl", "--inline", "-q", "-o", "run/report.md").code == 0
    (here / "policy.yaml").write_text("gates: [{metric: verification.pass_rate, min: 0.7}]")
    (here / "gate.json").write_text('{"decided": "GO"}')
    (here / "summary.md").write_text("GO")
    run = next((here / "evalq-runs").iterdir())
    done = command(
        "gate", str(run), "--policy", "policy.yaml", "-o", "t.jsonl/x.md", "-o", "summary.md", "-o", "gate.json"
    )
    assert (done.code, "NO-GO" in done.stdout) == (3, True), done
    assert "t.jsonl: File exists" in done.stderr
    assert "NO-GO" in (here / "summary.md").read_text()
    assert json.loads((here / "gate.json").read_text())["decided"] == "NO-GO"


def test_an_output_that_no_file_can_be_called_is_refused_before_anything_runs(here: Path, command: Command) -> None:
    """JSON and YAML can write a zero byte: all runs were computed before that ended in a traceback."""
    (here / "t.jsonl").write_text(json.dumps({"id": "t", "actual_output": GOOD}) + "\n")
    policy = {"gates": [{"metric": "verification.pass_rate", "min": 0.7}]}
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    (here / "suite.yaml").write_text(json.dumps({"runs": runs, "policy": policy, "outputs": ["a\0b.json"]}))
    done = command("run", "suite.yaml", "--inline")
    assert (done.code, "no file's name has a zero byte" in done.stderr) == (2, True), done.stderr
    assert not (here / "evalq-runs").exists()


def test_a_suite_writes_its_decision_and_no_stale_one(here: Path, command: Command) -> None:
    """A run of it that fails leaves an error in place of the decision before."""
    lines = [json.dumps({"id": f"t{n}", "actual_output": GOOD if n else BAD}) for n in range(20)]
    (here / "t.jsonl").write_text("\n".join(lines) + "\n")
    runs = [{"evaluator": "verification", "inputs": ["t.jsonl"]}]
    gates = {"gates": [{"metric": "verification.pass_rate", "min": 0.2}]}
    suite = {"runs": runs, "policy": gates, "outputs": ["ci/junit.xml", "ci/summary.md", "ci/gate.json"]}
    (here / "evalq.yaml").write_text(yaml.safe_dump(suite))
    assert command("run", "evalq.yaml", "--inline", "-q", "--format", "none").code == 0
    assert json.loads((here / "ci" / "gate.json").read_text())["decided"] == "GO"
    validated(here / "ci" / "junit.xml")
    (here / "t.jsonl").unlink()
    assert command("run", "evalq.yaml", "--inline", "-q", "--format", "none").code == 2
    assert json.loads((here / "ci" / "gate.json").read_text())["decided"] == "ERROR"
    assert next(validated(here / "ci" / "junit.xml").iter("error")) is not None


@pytest.mark.parametrize("shown", ["markdown", "yaml"])
def test_a_suite_that_nobody_can_be_shown_leaves_no_decision_of_an_earlier_attempt(
    here: Path, command: Command, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output is full in the middle: the gate is not reached, and a GO in the file would be of other runs."""
    (here / "t.jsonl").write_text("".join(json.dumps({"id": each, "actual_output": GOOD}) + "\n" for each in "tu"))
    suite: dict[str, object] = {"runs": [{"evaluator": "verification", "inputs": ["t.jsonl"]}]}
    suite |= {"policy": {"gates": [{"metric": "verification.pass_rate", "min": 0}]}, "outputs": ["gate.json"]}
    (here / "evalq.yaml").write_text(yaml.safe_dump(suite))
    assert command("run", "evalq.yaml", "--inline", "-q").code == 0
    assert json.loads((here / "gate.json").read_text())["decided"] == "GO"
    with contextlib.suppress(OSError), Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["run", "evalq.yaml", "--inline", "-q", "--format", shown]) == 3
    found = json.loads((here / "gate.json").read_text())
    assert (found["decided"], found["exit_code"]) == ("ERROR", 3)
    assert "standard output: No space left on device" in found["error"]


@pytest.mark.parametrize(
    ("ending", "kind", "code"),
    [
        (KeyboardInterrupt, "Interrupted", 130),
        (RuntimeError, "InfrastructureError", 3),
        (SystemExit, "InfrastructureError", 3),
    ],
)
@pytest.mark.parametrize("ended", [errors_written, errors_in_earlier_files])
def test_whatever_ends_a_decision_stands_in_place_of_an_earlier_one(
    tmp_path: Path, ending: type[BaseException], kind: str, code: int, ended: Callable[..., Any]
) -> None:
    """Ctrl-C, a plug-in's sys.exit(), and an error that nobody thought of; it goes on to whoever called."""
    path = tmp_path / "gate.json"
    path.write_text('{"decided":"GO"}')
    with pytest.raises(ending), ended("gate", [path]):
        raise ending
    found = json.loads(path.read_text())
    assert (found["decided"], found["kind"], found["exit_code"]) == ("ERROR", kind, code)


def test_a_run_writes_its_cases_too(here: Path, command: Command) -> None:
    """-o cases.xml of an evaluation: a testcase a case, with the reasons why its answers failed."""
    lines = [json.dumps({"id": f"t{n}", "actual_output": GOOD if n else BAD}) for n in range(3)]
    (here / "t.jsonl").write_text("\n".join(lines) + "\n")
    assert command("verification", "t.jsonl", "--inline", "-q", "--format", "none", "-o", "cases.xml").code == 0
    root = validated(here / "cases.xml")
    found = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert found == {"t0": ["failure"], "t1": [], "t2": []}


def test_only_what_the_gate_names_fails_base_beside_candidate(tmp_path: Path) -> None:
    """Every case that did not pass each time was a failure, whatever the baseline did."""
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}]})
    base = summaries.run_of(summaries.passes([(10, 10)] * 98 + [(5, 10)] * 2))
    for fell, word, heading in ((0, "SUSPECT", "1 of them"), (9, "INCONCLUSIVE", "none of them")):
        cand = summaries.run_of(summaries.passes([(fell, 10)] + [(10, 10)] * 97 + [(6, 10), (4, 10)]))
        decision = decide(policy, [cand], {"vs": base})
        assert decision.decided in (word, "GO")
        files = {name: data.decode() for name, data in written(tmp_path, decision, [cand]).items()}
        root = ElementTree.fromstring(files["junit.xml"])  # noqa: S314 - of our own
        failed = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
        assert ("c000000" in failed) == (fell == 0)
        assert not failed & {"c000098", "c000099"}
        assert "6 of 10 answers passed; 5 of 10 in the baseline" in files["junit.xml"]
        assert f"Of 100 cases of vs, 3 did not pass every time; {heading} beyond chance" in files["comment.md"]
        if fell == 0:
            assert 'type="SUSPECT"' in files["junit.xml"]
            assert "c000000 (10 of 10 to 0 of 10)" in files["comment.md"].splitlines()[3]
            # A larger fall of the mean is excluded, as its own line has it: a single case says nothing of that.
            assert [check.decided for check in decision.checks if not check.veto] == ["GO"]
            assert "neither shown nor excluded" not in files["junit.xml"]
            assert '"message":"SUSPECT"' in files["badge.json"].replace(" ", "")
            assert files["annotations.txt"].startswith("::error title=evalq gate%3A SUSPECT")


def test_cases_without_an_answer_are_called_so(tmp_path: Path) -> None:
    """Every call failed: the comment does not say that cases failed, nor JUnit that more repeats would tell."""
    policy = Policy.model_validate({"gates": [{"metric": "vs.pass_rate", "max_drop": 0.05}]})
    usage = RunUsage(outputs=20)
    base = msgspec.structs.replace(summaries.run_of(summaries.passes([(2, 2)] * 10)), target="agent", usage=usage)
    lost = summaries.run_of(summaries.passes([(0, 0)] * 10, [2] * 10))
    decision = decide(policy, [lost := msgspec.structs.replace(lost, target="agent", usage=usage)], {"vs": base})
    assert (decision.decided, decision.exit_with) == ("INCONCLUSIVE", 3)
    files = {name: data.decode() for name, data in written(tmp_path, decision, [lost]).items()}
    assert "## Of 10 cases of vs, 10 have no answer\n" in files["comment.md"]
    assert "did not pass" not in files["comment.md"]
    assert "more repeats" not in files["junit.xml"]
    assert "answers are missing: call again, then decide again" in files["junit.xml"]
    assert "nothing is known of it" in files["junit.xml"]
    assert "beyond chance: no check" not in files["junit.xml"]
