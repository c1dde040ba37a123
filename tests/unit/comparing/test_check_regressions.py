"""Files of results, checked against the stored baseline or against each other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from tests.unit.checks.labelled import judged_line, labels_file
from tests.unit.comparing.conftest import BAD, GOOD, Command, Made

WELL = [(f"t{n}", True) for n in range(80)]
WORSE = [(f"t{n}", n >= 20) for n in range(80)]


def results(command: Command, name: str, passes: list[tuple[str, bool]]) -> str:
    """Evaluates as the seed's workflow does, standard output into a file."""
    lines = [json.dumps({"id": case, "actual_output": GOOD if passed else BAD}) for case, passed in passes]
    Path("in.jsonl").write_text("\n".join(lines) + "\n")
    done = command("verification", "in.jsonl", "--inline", "-q", "--format", "json")
    assert done.code == 0, done.stderr
    Path(name).write_text(done.stdout)
    return name


def test_one_file_is_checked_against_the_stored_baseline(here: Path, command: Command) -> None:
    """Nothing approved: 4, and how to approve; the same again: 0, as each case has one answer; worse: 1."""
    first = results(command, "first.json", WELL)
    done = command("check-regressions", first)
    assert done.code == 4
    assert "evalq baseline set main verification-" in done.stdout
    assert command("check-regressions", first, "--allow-inconclusive").code == 0
    assert command("baseline", "set", "main", first).code == 0
    assert command("check-regressions", first).code == 0
    worse = results(command, "worse.json", WORSE)
    done = command("check-regressions", worse)
    assert (done.code, done.stdout.splitlines()[0][:7]) == (1, "# NO-GO"), done.stdout


@pytest.mark.parametrize("text", ["not JSON", "{}", '{"answer": 42}', "[1]", ""])
def test_a_file_that_is_no_run_is_a_mistake_of_who_named_it(here: Path, command: Command, text: str) -> None:
    """Exit code 2, and what can be named instead; a damaged file of cases stays damage."""
    Path("other.json").write_text(text)
    for words in (["check-regressions", "other.json"], ["baseline", "set", "main", "other.json"]):
        done = command(*words)
        assert (done.code, "other.json is not a run: name a run folder" in done.stderr) == (2, True), done.stderr
    Path("other.json").write_text('{"schema":"evalq.cases/2","run":')
    assert command("baseline", "set", "main", "other.json").code == 3


def test_two_files_are_checked_against_each_other(here: Path, command: Command) -> None:
    """A drop in the one direction only; the further measures are shown and do not block."""
    base, worse = results(command, "base.json", WELL), results(command, "worse.json", WORSE)
    assert command("check-regressions", worse, base).code == 1
    assert command("check-regressions", base, worse).code == 0
    done = command("check-regressions", worse, base, "--json", "--statistical")
    tiers = {check["metric"]: check["tier"] for check in json.loads(done.stdout)["checks"]}
    assert tiers["verification.pass_rate"] == "critical"
    assert tiers["verification.mean_score"] == "supporting"


def test_judges_decide_nothing_until_people_labelled_them(here: Path, command: Command) -> None:
    """What rests on them is shown, and the plain pass rate decides; labels of either run give them their say."""
    case = {"checks": [{"rubric": "It is polite.", "name": "polite"}, {"max-length": 20}]}
    Path("cases.json").write_text(json.dumps({"cases": [{"id": f"m{n}", **case} for n in range(40)]}))

    def judged(name: str, passes: bool, *more: str) -> str:
        lines = [judged_line(f"m{n}", repeat, passes) for n in range(40) for repeat in range(3)]
        Path("in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        done = command("checks", "cases.json", "--outputs", "in.jsonl", "--inline", "-q", "--format", "json", *more)
        assert done.code == 0, done.stderr
        Path(name).write_text(done.stdout)
        return name

    for passed in (True, False):
        labels = labels_file([(f"m{n}", 1, "polite", passed) for n in range(40)])
        Path(f"{passed}.jsonl").write_text(labels)
    base, labelled = judged("base.json", True), judged("labelled.json", True, "--labels", "True.jsonl")
    worse, both = judged("worse.json", False), judged("both.json", False, "--labels", "False.jsonl")
    done = command("check-regressions", worse, base, "--json")
    checks = {check["metric"]: (check["tier"], check["decided"]) for check in json.loads(done.stdout)["checks"]}
    assert done.code == 0
    assert checks["checks.pass_rate"] == ("advisory", "INCONCLUSIVE")
    assert checks["checks.score"] == ("advisory", "NO-GO")
    assert checks["checks.plain.pass_rate"] == ("critical", "GO")
    # Labels of answers that pass say nothing of how often the judge errs in those that fail.
    assert command("check-regressions", worse, labelled).code == 0
    assert command("check-regressions", both, labelled).code == 1


def test_recorded_runs_that_ask_other_cases_are_not_passed_by_the_few_in_both(here: Path, command: Command) -> None:
    """Renamed, or asked otherwise, all but one of them fails."""
    names = [f"m{n}" for n in range(20)]

    def recorded(name: str, asks: dict[str, str], passes: set[str]) -> str:
        cases = [{"id": case, "input": text, "checks": [{"contains": "yes"}]} for case, text in asks.items()]
        Path("cases.json").write_text(json.dumps({"cases": cases}))
        lines = [json.dumps({"case": case, "output": "yes" if case in passes else "no"}) for case in asks]
        Path("in.jsonl").write_text("\n".join(lines) + "\n")
        done = command("checks", "cases.json", "--outputs", "in.jsonl", "--inline", "-q", "--format", "json")
        Path(name).write_text(done.stdout)
        return name

    base = recorded("base.json", {name: f"say {name}" for name in names}, set(names))
    renamed = recorded("renamed.json", {"m0": "say m0"} | {f"other{n}": "say" for n in range(1, 20)}, {"m0"})
    otherwise = recorded("otherwise.json", {name: "say m0" if name == "m0" else "say!" for name in names}, {"m0"})
    fewer = recorded("fewer.json", {"m0": "say m0"}, {"m0"})
    for name in (renamed, otherwise, fewer):
        assert command("check-regressions", name, base).code == 4, name
    other = recorded("other.json", {"z": "say z"}, {"z"})
    done = command("check-regressions", other, base, "--allow-inconclusive", "-o", "junit.xml")
    assert done.code == 5
    root = re.search("<testsuites [^>]*>", Path("junit.xml").read_text())
    assert root is not None
    assert ' failures="0"' not in root.group()


def test_a_file_that_is_copied_under_another_name_decides_nothing(here: Path, command: Command) -> None:
    """Twenty answers cannot tell; the same twenty in ten files are still twenty."""
    results(command, "once.json", WELL[:20])
    Path("policy.yaml").write_text("gates: [{metric: verification.pass_rate, min: 0.9}]")
    assert command("gate", "once.json", "--policy", "policy.yaml").code == 4
    for n in range(9):
        shutil.copy("in.jsonl", f"in{n}.jsonl")
    files = [str(path) for path in sorted(Path().glob("in*.jsonl"))]
    done = command("verification", *files, "--inline", "-q", "--format", "none", "--out", "copied")
    assert done.code == 0, done.stderr
    done = command("gate", "copied", "--policy", "policy.yaml")
    assert done.code == 4
    assert "the candidate has 9 files with the bytes of another one" in done.stdout


def test_results_of_a_suite_are_all_of_its_runs(here: Path, made: Made, command: Command) -> None:
    """With their names, and wherever the suite put their folders."""
    made("unrelated", WELL)
    results(command, "ignored.json", WELL)
    runs = [{"evaluator": "verification", "inputs": ["in.jsonl"], "name": name} for name in ("one", "other")]
    Path("evalq.yaml").write_text(json.dumps({"runs": runs}))
    done = command("run", "evalq.yaml", "--inline", "-q", "--format", "json", "--out", "deep/results")
    Path("deep/suite.json").write_text(done.stdout)
    assert command("baseline", "set", "main", "deep/suite.json").code == 0
    assert {path.name for path in Path("evalq-baselines/main").glob("*.json")} == {"one.json", "other.json"}
    assert command("check-regressions", "deep/suite.json").code == 0


def test_results_whose_run_is_gone_say_what_is_needed(here: Path, command: Command) -> None:
    """A report says nothing of single cases."""
    file = results(command, "first.json", WELL)
    shutil.rmtree("evalq-runs")
    done = command("check-regressions", file)
    assert done.code == 2
    assert "has the cases of its run of verification (80 records)" in done.stderr


@pytest.mark.parametrize("text", ["", "[]", "{", '{"runs": 3}', '{"runs": [7]}', "[" * 100_000])
def test_files_that_are_no_results_are_refused(here: Path, command: Command, text: str) -> None:
    """As what they are, with their name."""
    Path("odd.json").write_text(text)
    done = command("check-regressions", "odd.json")
    assert done.code in (2, 3)
    assert "odd.json" in done.stderr


def test_a_suite_of_which_a_run_failed_is_not_checked(here: Path, command: Command) -> None:
    """What failed is no result, and the rest is not all."""
    Path("part.json").write_text(json.dumps({"runs": [{"evaluator": "vs", "error": "no golden"}]}))
    done = command("check-regressions", "part.json")
    assert done.code == 2
    assert "the run of vs in these results failed: no golden" in done.stderr


def test_what_an_evaluator_shows_in_place_of_its_report_will_do(here: Path, command: Command) -> None:
    """The results of a golden set's tests, in their specification's form."""
    with Path("outputs.jsonl").open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=20, seed=1)
    Path("golden.yaml").write_text(GOLDEN.read_text())
    done = command("vs", "golden.yaml", "--outputs", "outputs.jsonl", "--inline", "-q", "--format", "json")
    assert "test_run" in json.loads(done.stdout)
    Path("results.json").write_text(done.stdout)
    assert command("baseline", "set", "main", "results.json").code == 0
    checked = command("check-regressions", "results.json", "--margin", "0.2")
    # It was found: the very run that was approved.
    assert checked.code == 2, checked
    assert "is both the candidate and the baseline" in checked.stderr


def test_a_run_that_is_damaged_is_not_the_one_that_is_looked_for(here: Path, command: Command) -> None:
    """Half a report, one of another form, and one of an evaluator that is not there lie nearer."""
    with Path("outputs.jsonl").open("wb") as stream:
        write_outputs(stream, sample_cases(), repeats=20, seed=1)
    Path("golden.yaml").write_text(GOLDEN.read_text())
    done = command("vs", "golden.yaml", "--outputs", "outputs.jsonl", "--inline", "-q", "--format", "json")
    Path("results.json").write_text(done.stdout)
    records = json.dumps(json.loads(done.stdout)["records"])
    for name, report in (("0", "{half"), ("1", "{}"), ("2", f'{{"records": {records}, "evaluator": "gone"}}')):
        Path(name).mkdir()
        Path(name, "run.json").write_text("{}")
        Path(name, "report.json").write_text(report)
    checked = command("check-regressions", "results.json", "results.json", "--margin", "0.2")
    assert checked.code == 2, checked
    assert "is both the candidate and the baseline" in checked.stderr
