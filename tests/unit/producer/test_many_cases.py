"""A run of many cases: what of its folder grows with them, counted in bytes and in files that are read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.checks import check
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.model.canonical import canonical_json, longer_than
from evalq.producer.cli import cli
from evalq.producer.folder.files import RUNS
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.final import results_yaml, yaml_text
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.unit.producer.quiet import QUIET

FEW, SOME, MANY = 40, 2_000, 4_000
EVERY = 10
"""One case of so many fails."""
_opened: list[str] = []
_watching: list[str] = []


def _note(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _watching and (path := str(Path(str(args[0])).absolute())).startswith(_watching[0]):
        _opened.append(path)


sys.addaudithook(_note)


def asked(folder: Path, cases: int) -> Request:
    """A request for so many cases with an output each, of which some fail."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = [{"id": f"case-{n:05}", "input": f"Say {n}.", "checks": [{"contains": f"<{n}>"}]} for n in range(cases)]
    said = [{"case": f"case-{n:05}", "output": f"<{n}>" if n % EVERY else "no"} for n in range(cases)]
    for name, lines in (("cases.jsonl", listed), ("outputs.jsonl", said)):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Request([str(folder / "cases.jsonl")], {}, {"outputs": (str(folder / "outputs.jsonl"),)})


def evaluated(folder: Path, request: Request, evaluator: str = "checks") -> Path:
    """The folder of a finished run."""
    job = Job.start(plugins.get(evaluator), request, RunOptions(out=folder / RUNS / "run"))
    carry_out(job, Backend(Settings(), inline=True), QUIET)
    return folder / RUNS / "run"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Finished runs by how many cases they have."""
    made = {}
    for cases in (FEW, SOME, MANY):
        folder = tmp_path_factory.mktemp(f"cases-{cases}")
        made[cases] = evaluated(folder, asked(folder, cases))
    return made


@pytest.fixture
def reads() -> Iterator[list[str]]:
    """The files that are opened below the folder that is put into it."""
    _opened.clear()
    yield _watching
    _watching.clear()


@pytest.mark.parametrize(
    ("name", "most"), [("run.json", 100), ("results.yaml", 1_000), ("report.md", 100), ("manifest.json", 20_000)]
)
def test_twice_the_cases_are_not_twice_the_file(runs: dict[int, Path], name: str, most: int) -> None:
    """Only numbers get longer, the names of the cases that are shown, and the plan by a line for each chunk."""
    some, many = ((runs[cases] / name).stat().st_size for cases in (SOME, MANY))
    assert abs(many - some) < most


def test_a_page_has_so_many_rows_and_no_more(runs: dict[int, Path]) -> None:
    """Charts and parameters are bounded; the packed table of records alone grows, by a fraction of its records."""
    pages = {cases: (runs[cases] / "report.html").read_text() for cases in (SOME, MANY)}
    charts = {cases: page.partition('<script type="text/plain"')[0] for cases, page in pages.items()}
    assert abs(len(charts[MANY]) - len(charts[SOME])) < 2_000
    assert charts[MANY].count("case-0") < 2_400
    assert f"The first 1,000 of {MANY:,}; report.json has all." in charts[MANY]
    grown = len(pages[MANY]) - len(pages[SOME])
    assert grown < (runs[MANY] / "records.jsonl").stat().st_size / 4


def test_long_parameters_are_left_out_of_a_page(tmp_path: Path) -> None:
    """However few cases they are of."""
    listed = [{"id": "a", "checks": [{"equals": "x" * (1 << 20)}]}]
    (tmp_path / "cases.jsonl").write_text(json.dumps(listed[0]) + "\n")
    (tmp_path / "outputs.jsonl").write_text('{"case":"a","output":"y"}\n')
    request = Request([str(tmp_path / "cases.jsonl")], {}, {"outputs": (str(tmp_path / "outputs.jsonl"),)})
    page = (evaluated(tmp_path, request) / "report.html").read_text()
    assert "They are longer than 256 KiB: report.json has them." in page
    assert len(page) < 200_000


def test_results_yaml_names_what_failed_and_counts_the_rest(runs: dict[int, Path]) -> None:
    """The numbers of all cases, the first cases that failed, and how many there are of each."""
    found = yaml.safe_load((runs[MANY] / "results.yaml").read_text())
    report = json.loads((runs[MANY] / "report.json").read_bytes())
    assert found["results"]["outputs"] == report["results"]["outputs"]
    assert [entry["case"] for entry in found["results"]["by_case"]] == [f"case-{n:05}" for n in range(0, 1_000, EVERY)]
    assert found["left_out_here"]["lists"] == [
        {"where": "params.cases", "listed": 100, "of": MANY, "failed": 0},
        {"where": "results.by_case", "listed": 100, "of": MANY, "failed": MANY // EVERY},
    ]
    assert len(report["results"]["by_case"]) == len(report["params"]["cases"]) == MANY


def test_few_cases_have_the_files_that_they_always_had(runs: dict[int, Path]) -> None:
    """All of the report in results.yaml, of the parameters in run.json, and of the rows in the page."""
    folder = runs[FEW]
    report = json.loads((folder / "report.json").read_bytes())
    assert (folder / "results.yaml").read_text() == yaml_text(report)
    request = json.loads((folder / "run.json").read_bytes())["request"]
    assert [case["id"] for case in request["params"]["cases"]] == [case["id"] for case in report["params"]["cases"]]
    plan = json.loads((folder / "manifest.json").read_bytes())
    assert plan["header"]["params"] == report["params"]
    page = (folder / "report.html").read_text()
    assert all(page.count(f">case-{number:05}</a>") for number in range(FEW))


def test_a_list_of_runs_reads_one_small_file_of_each(
    runs: dict[int, Path], reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evalq list` and `evalq status` open run.json alone, which does not grow with cases."""
    parent = runs[MANY].parent
    monkeypatch.chdir(parent.parent)
    reads.append(str(parent))
    found = CliRunner().invoke(cli, ["list"])
    assert found.exit_code == 0, found.output
    assert RunFolder(runs[MANY]).info().run in found.output
    told = CliRunner().invoke(cli, ["status", str(runs[MANY])])
    assert f"{MANY - MANY // EVERY:,} of {MANY:,} outputs passed" in told.output
    opened = [Path(path) for path in _opened]
    assert opened
    assert {path.name for path in opened} == {"run.json"}
    assert sum(path.stat().st_size for path in opened) < 20_000


def test_a_vs_run_of_many_cases_is_bounded_too(tmp_path: Path) -> None:
    """In the form that its specification has; cases that did not pass come first."""
    evaluator = plugins.get("vs")
    assert evaluator.sample is not None
    run = evaluated(tmp_path, evaluator.sample.write(tmp_path, 400, 1), "vs")
    report = json.loads((run / "report.json").read_bytes())
    details = report["results"]["test_run"]["detailed_results"]
    failed = sum(entry["status"] != "PASSED" for entry in details)
    assert 0 < failed < len(details)
    sizes = []
    for times in (500, 1_000):
        results = {
            **report["results"],
            "test_run": {**report["results"]["test_run"], "detailed_results": details * times},
        }
        text = results_yaml(evaluator, {**report, "results": results}, "2026-01-01T00:00:00", 2 << 20)
        found = yaml.safe_load(text)
        assert next(iter(found)) == "test_run"
        shown = found["test_run"]["detailed_results"]
        assert len(shown) == 100
        assert "PASSED" not in {entry["status"] for entry in shown}
        told = {entry["where"]: entry for entry in found["left_out_here"]["lists"]}
        assert told["results.test_run.detailed_results"]["failed"] == failed * times
        sizes.append(len(text))
    assert sizes[1] < sizes[0] + 100


@pytest.mark.parametrize("cases", [FEW, SOME])
def test_a_run_that_is_resumed_has_all_that_it_was_asked(tmp_path: Path, cases: int) -> None:
    """With the parameters in run.json, and with them in the plan alone."""
    job = Job.start(plugins.get("checks"), asked(tmp_path, cases), RunOptions(out=tmp_path / "run"))
    with job.folder.driving():
        pass  # let go of, as by a process that ended
    again = Job.load(RunFolder(tmp_path / "run"))
    assert again.params == job.params
    assert len(again.request.params["cases"]) == cases
    assert again.request.options == msgspec.to_builtins(job.request.options) | {
        "outputs": again.request.options["outputs"]
    }
    written = carry_out(again, Backend(Settings(), inline=True), QUIET)
    assert written["results"]["outputs"]["total"] == cases


def test_a_folder_from_before_is_read(runs: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run.json has all cases, however many."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / RUNS / "old"
    shutil.copytree(runs[MANY], folder)
    facts = json.loads((folder / "run.json").read_bytes())
    facts["request"]["params"] = {"cases": json.loads((folder / "report.json").read_bytes())["params"]["cases"]}
    (folder / "run.json").write_bytes(canonical_json(facts))
    assert len(RunFolder(folder).info().request.params["cases"]) == MANY
    found = CliRunner().invoke(cli, ["list"])
    assert found.exit_code == 0, found.output
    assert RunFolder(folder).info().run in found.output


@pytest.mark.parametrize("value", ["x", {"a": [1, 2.5, None]}, "\udc80", {"\ud800": ["é"]}])
def test_a_length_is_that_of_what_is_written(value: Any) -> None:
    """Also of what UTF-8 has no bytes for."""
    size = len(canonical_json(value))
    assert longer_than(value, size - 1)
    assert not longer_than(value, size)


def test_a_check_is_made_ready_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From reading the cases to the report, however many cases have it; other packages' checks are looked up anew.

    Not of those that are made as fast as they are found.
    """
    made: list[Any] = []

    def noted(written: Any, depth: int = 0) -> Any:
        made.append(written)
        return compile_check(written, depth)

    monkeypatch.setattr(check, "compile_check", noted)
    check.compiled.clear()
    request = asked(tmp_path, FEW)
    lines = (tmp_path / "cases.jsonl").read_text().splitlines()
    cases = [{**json.loads(line), "checks": [{"regex": f"<{n}>"}, {"equals": "x"}]} for n, line in enumerate(lines)]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    evaluated(tmp_path, request)
    assert len(made) == FEW + 1
    check.compiled({"equals": "x"})
    assert len(made) == FEW + 1
    try:
        plugins.name_checks({"other": "json:dumps"})
        check.compiled({"equals": "x"})
    finally:
        plugins.name_checks({})
    assert len(made) == FEW + 2


def test_runs_of_many_cases_are_compared_and_gated(runs: dict[int, Path], tmp_path: Path) -> None:
    """From what their folders hold, whatever of it is bounded: half of the cases say something else by now."""
    again = asked(tmp_path, SOME)
    lines = (tmp_path / "outputs.jsonl").read_text().replace('"<1', '"1')
    (tmp_path / "outputs.jsonl").write_text(lines)
    other = evaluated(tmp_path, again)
    found = CliRunner().invoke(cli, ["compare", str(runs[SOME]), str(other)])
    assert found.exit_code == 0, found.output
    assert f"over {SOME:,} cases that both answered" in found.output
    assert "worse" in found.output
    policy = tmp_path / "policy.yaml"
    policy.write_text("gates: [{metric: checks.pass_rate, max_drop: 0.05}]\n")
    gated = CliRunner().invoke(cli, ["gate", str(other), "--policy", str(policy), "--baseline", str(runs[SOME])])
    assert gated.output.startswith("# NO-GO"), gated.output
