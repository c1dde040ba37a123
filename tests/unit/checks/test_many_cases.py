"""Cases in a file beside the plan: the same figures as with all cases in the parameters."""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evalq.evalcore.errors import ConfigError, InputError, UsageError, WireError
from evalq.evalcore.evaluators.checks.evaluator import ChecksEvaluator, evaluator
from evalq.evalcore.evaluators.checks.inputs import begin_request
from evalq.evalcore.evaluators.checks.params import CASES
from evalq.evalcore.fold import Evaluation, evaluate_files
from evalq.evalcore.model.lines import LONG, Lines, whole
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.outputs import write_final
from evalq.producer.run.backend import Backend
from evalq.producer.run.chunks import Collector, drive_inline
from evalq.producer.run.execute import launch
from evalq.workers.settings import Settings
from tests.unit.producer.quiet import QUIET


class _Long(ChecksEvaluator):
    """Checks that keep more than a few cases in a file."""

    def __init__(self, long: int) -> None:
        self.command = msgspec.structs.replace(evaluator.command, begin=partial(begin_request, long=long))  # type: ignore[misc]


def _both(cases: Path, outputs: list[Path], long: int = 2, chunk: int | None = None, **options: Any) -> Evaluation:
    """The evaluation with the cases in a file, which equals the one with all of them in memory."""
    given = {"outputs": [str(path) for path in outputs], **options}
    memory = evaluate_files(_Long(10**9), [str(cases)], options=given, chunk_size=chunk)
    filed = evaluate_files(_Long(long), [str(cases)], options=given, chunk_size=chunk)
    assert filed.report == memory.report
    assert filed.lines == memory.lines
    return filed


def _lines(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(record if isinstance(record, str) else json.dumps(record) + "\n" for record in records))
    return path


def _cases(folder: Path, count: int, **more: Any) -> Path:
    return _lines(
        folder / "cases.jsonl",
        [{"id": f"c{n}", "input": f"{n}?", "checks": [{"contains": str(n)}], **more} for n in range(count)],
    )


def _outputs(folder: Path, cases: range, repeats: int = 1, name: str = "outputs.jsonl") -> Path:
    return _lines(
        folder / name,
        [{"case": f"c{n}", "repeat": r, "output": f"It is {n * (r + 1)}."} for n in cases for r in range(repeats)],
    )


_CHECKS: tuple[Any, ...] = (
    {"contains": "1"},
    {"not-icontains": "ß"},
    {"max-length": 12},
    {"regex": "[0-9]+", "name": "a number", "weight": 2},
    {"any": [{"contains": "1"}, {"equals": "2"}]},
    {"equals": {"a": 1}},
    {"contains": "7", "weight": 0},
    {"json-path": "a", "is": 1},
    {"max-cost": 1},
    {"rubric": "It is polite."},
)
_WRITTEN = ("It is 1.", "2", '{"a":1}', "no\tway: ß", "", None, {"a": 1}, "7" * 20, 'say "case": "x"')


def _random_case(draw: random.Random, number: int) -> dict[str, Any]:
    case: dict[str, Any] = {"id": f"c{number}" if number % 7 else f'c "{number}", ü'}
    if draw.random() < 0.8:
        case["input"] = f"question {number}"
    case["checks"] = [draw.choice(_CHECKS[: 3 if draw.random() < 0.6 else None]) for _ in range(draw.randint(1, 3))]
    if all(check.get("weight", 1) == 0 for check in case["checks"]):
        case["checks"].append({"contains": "1"})
    if draw.random() < 0.5:
        case["tags"] = draw.sample(("even", "odd", "x"), draw.randint(0, 3))
    if draw.random() < 0.2:
        case |= {"thresholds": draw.choice([{"pass-rate": 0.5}, {"score": 0.5, "pass@2": 0.3}]), "weight": 2}
    if draw.random() < 0.2:
        case["diversity"] = draw.choice(["text", "near"])
    if draw.random() < 0.1:
        case |= {"vars": {"v": number}, "input": "{{v}} and {{id}}", "expected": f"{number}"}
    return case


def _random_line(draw: random.Random, cases: list[dict[str, Any]]) -> Any:
    if draw.random() < 0.1:
        return draw.choice(
            [
                "\n",
                "  \n",
                "no JSON\n",
                "[1]\n",
                '{"case":"c1","case":"c2","output":"1"}\n',
                '{"case":1,"output":"1"}\n',
            ]
        )
    line: dict[str, Any] = {"case": draw.choice(cases)["id"], "repeat": draw.randint(0, 3)}
    if draw.random() < 0.1:
        line["case"] = "unknown"
    line["output"] = draw.choice(_WRITTEN)
    if draw.random() < 0.3:
        line |= draw.choice(
            [{"cost": 0.5}, {"latency_seconds": 1}, {"error": "lost"}, {"labels": {"contains": True}}, {"repeat": -1}]
        )
    if draw.random() < 0.1:
        return json.dumps(line, indent="\t").replace("\n", "") + "\n"
    return line


@pytest.mark.parametrize("seed", range(12))
def test_any_cases_and_outputs_give_the_same_report_and_records(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    written = [_random_case(draw, number) for number in range(draw.randint(4, 30))]
    cases = _lines(tmp_path / "cases.jsonl", written)
    files = [
        _lines(tmp_path / f"outputs{n}.jsonl", [_random_line(draw, written) for _ in range(draw.randint(1, 80))])
        for n in range(draw.randint(1, 2))
    ]
    if draw.random() < 0.5:
        files[0].write_bytes(b"\xef\xbb\xbf" + files[0].read_bytes().removesuffix(b"\n"))
    options: dict[str, Any] = (
        {"case_tag": "even"} if any("even" in case.get("tags", ()) for case in written) and seed % 3 == 0 else {}
    )
    _both(cases, files, chunk=draw.choice([None, 1, 7]), **options)


def test_cases_without_outputs_reversed_and_doubled_outputs_count_the_same(tmp_path: Path) -> None:
    cases = _cases(tmp_path, 9)
    outputs = _outputs(tmp_path, range(7, -3, -1), repeats=2)
    outputs.write_text(outputs.read_text() * 2)
    report = _both(cases, [outputs], chunk=4).report
    assert report["results"]["cases"] == {"total": 9, "answered": 8, "unrecorded": 1}
    assert report["results"]["outputs"]["errors"] == 8  # of the cases c-1 and c-2, which are none


def test_a_file_has_as_many_cases_as_there_may_be_and_one_more_goes_beside(tmp_path: Path) -> None:
    outputs = _outputs(tmp_path, range(5))
    for count, beside in ((4, False), (5, False), (6, True)):
        request, many = begin_request(_request(_cases(tmp_path, count), outputs), long=5)
        assert (many is not None) is beside
        assert ("cases_file" in request.params) is beside
        assert len(request.params["cases"]) == (0 if beside else count)
        _both(_cases(tmp_path, count), [outputs], long=5)
    _both(_cases(tmp_path, 1), [outputs], long=0)
    assert LONG == 10_000


def _request(cases: Path, outputs: Path, **options: Any) -> Any:
    from evalq.evalcore.fold import request_of

    return request_of(evaluator, [str(cases)], {}, {"outputs": [str(outputs)], **options})


def test_faults_are_the_same_however_many_cases_there_are(tmp_path: Path) -> None:
    outputs = _outputs(tmp_path, range(3))
    wrong: list[tuple[list[Any], dict[str, Any]]] = [
        ([], {}),
        ([{"id": "a", "checks": [{"contains": "1"}]}] * 4, {}),
        ([{"id": f"c{n}", "checks": [{"contains": n}]} for n in range(5)], {}),
        ([*({"id": f"c{n}", "checks": [{"contains": "1"}]} for n in range(5)), "{\n", {"id": "d", "chekcs": []}], {}),
        ([{"id": f"c{n}", "checks": [{"contains": "1"}]} for n in range(5)], {"case_tag": "none"}),
        ([{"id": f"other{n}", "checks": [{"contains": "1"}]} for n in range(5)], {}),
    ]
    for records, options in wrong:
        messages = []
        for long in (10**9, 2):
            cases, given = _lines(tmp_path / "cases.jsonl", records), {"outputs": [str(outputs)], **options}
            with pytest.raises((ConfigError, UsageError, InputError)) as raised:
                evaluate_files(_Long(long), [str(cases)], options=given)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_labels_of_people_count_the_same(tmp_path: Path) -> None:
    checks = [{"rubric": "It is polite.", "name": "polite"}, {"contains": "It"}]
    cases, outputs = _cases(tmp_path, 6, checks=checks), _outputs(tmp_path, range(6))
    labels = _lines(
        tmp_path / "labels.jsonl",
        [{"case": f"c{n}", "check": "contains", "passed": n != 2} for n in (*range(5), 99)],
    )
    report = _both(cases, [outputs], labels=str(labels)).report
    assert report["results"]["labels"]["astray"]


def _finished(evaluator: ChecksEvaluator, cases: Path, outputs: Path, out: Path, *, resumed: bool = False) -> Job:
    job = Job.start(evaluator, _request(cases, outputs), RunOptions(out=out, chunk_size=3))
    with job.folder.driving():
        collector = Collector(job)
        if resumed:

            class _Killed(Exception):
                pass

            def stop(progress: Any) -> None:
                if progress.records > 5:
                    raise _Killed

            with pytest.raises(_Killed):
                drive_inline(job, collector, stop)
            collector.close()
            job = Job.load(job.folder)
            collector = Collector(job)
        drive_inline(job, collector, lambda progress: None)
        assert job.manifest.seal is not None
        report = collector.finish(job.manifest.seal)
        write_final(job, report, {}, "", collector.written)
    return job


def test_a_run_folder_has_its_cases_in_files_of_lines_also_after_a_kill(tmp_path: Path) -> None:
    cases, outputs = _cases(tmp_path, 12, tags=["t"]), _outputs(tmp_path, range(12), repeats=2)
    plain = _finished(_Long(10**9), cases, outputs, tmp_path / "plain").folder
    for name, resumed in (("long", False), ("resumed", True)):
        folder = _finished(_Long(2), cases, outputs, tmp_path / name, resumed=resumed).folder
        written = json.loads((folder.path / "report.json").read_bytes())
        assert written["params"]["cases"]["lines_in"] == CASES
        assert written["results"]["by_case"]["lines_in"] == "by_case.jsonl"
        report = folder.report()
        assert isinstance(report["results"]["by_case"], Lines)
        assert whole(report) == plain.report()
        assert folder.records.read_bytes() == plain.records.read_bytes()
        assert (folder.path / "report.md").read_bytes() == (plain.path / "report.md").read_bytes()
        assert not (folder.path / "spool").exists()
    assert (tmp_path / "long" / "report.json").read_bytes() == (tmp_path / "resumed" / "report.json").read_bytes()


def test_a_run_that_is_left_to_workers_has_all_cases_in_its_plan(tmp_path: Path) -> None:
    """One that was begun with its cases in a file is refused, with the command that goes on."""
    cases, outputs = _cases(tmp_path, 5), _outputs(tmp_path, range(5))
    whole_plan = Job.start(_Long(2), _request(cases, outputs), RunOptions(out=tmp_path / "whole", whole=True))
    assert len(whole_plan.header.params["cases"]) == 5
    assert not any(source.joined for source in whole_plan.sources)
    job = Job.start(_Long(2), _request(cases, outputs), RunOptions(out=tmp_path / "run"))
    with job.folder.driving():
        pass  # let go of, as by a process that ended
    with pytest.raises(UsageError, match="evalq resume"):
        launch(job.folder, Backend(Settings()), QUIET)


def test_a_list_that_is_not_in_its_file_is_an_error_with_a_place(tmp_path: Path) -> None:
    """The file is gone, short, or a link to somebody's file; a report names no file elsewhere."""
    folder = _finished(_Long(2), _cases(tmp_path, 5), _outputs(tmp_path, range(5)), tmp_path / "run").folder
    listed, report = folder.path / "by_case.jsonl", folder.path / "report.json"
    content = listed.read_bytes()
    assert folder.report()["results"]["by_case"][-1]["case"] == "c4"
    listed.write_bytes(content[: content.index(b"\n") + 1])
    with pytest.raises(WireError, match=r"by_case.jsonl has 1 lines, and the report says 5"):
        list(folder.report()["results"]["by_case"])
    listed.unlink()
    (tmp_path / "elsewhere.jsonl").write_bytes(content)
    listed.symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(WireError, match=r"by_case.jsonl cannot be read"):
        list(folder.report()["results"]["by_case"])
    report.write_bytes(report.read_bytes().replace(b'"by_case.jsonl"', b'"../elsewhere.jsonl"'))
    with pytest.raises(WireError, match=r"run/elsewhere.jsonl cannot be read"):
        list(folder.report()["results"]["by_case"])


def test_nobody_else_names_the_file_of_cases(tmp_path: Path) -> None:
    request = _request(_cases(tmp_path, 5), _outputs(tmp_path, range(5)))
    request.params["cases_file"] = {"lines": 5, "sha256": "0" * 64}
    with pytest.raises(UsageError, match="for evalq alone"):
        begin_request(request)


def test_faulty_cases_leave_no_folder(tmp_path: Path) -> None:
    cases = _lines(tmp_path / "cases.jsonl", [{"id": f"c{n}", "checks": [{"no": 1}]} for n in range(5)])
    with pytest.raises(ConfigError):
        Job.start(_Long(2), _request(cases, _outputs(tmp_path, range(2))), RunOptions(out=tmp_path / "run"))
    assert not (tmp_path / "run").exists()
