"""What is kept of a run for comparisons: counts and sums of each case, of this very report."""

from __future__ import annotations

import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import evalq
from evalq.evalcore.compare.counting import CaseCounter, usage_of
from evalq.evalcore.compare.pairs import left_out, short_repeats
from evalq.evalcore.compare.summary import CaseSummary, RunUsage, Summing
from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.measures import Measure, Observation
from evalq.evalcore.errors import InfrastructureError, UsageError, WireError
from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases, write_outputs
from evalq.evalcore.fold import evaluate_files
from evalq.evalcore.model.lines import encode_in_lines
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import CASES, cases_of, decode_cases
from tests.unit.comparing.conftest import Command, Made


def test_a_case_has_the_sums_of_its_answers(made: Made) -> None:
    """In the order of the cases' ids, whatever that of the records."""
    folder = made("run", [("b", True), ("a", False), ("b", False), ("b", True), ("a", True)])
    found = cases_of(RunFolder.existing(folder))
    assert (found.evaluator, found.records["total"]) == ("verification", 5)
    assert found.cases.ids == ["a", "b"]
    passes = found.cases.columns["pass_rate"]
    assert (passes.count, passes.total, passes.squares) == ([2, 3], [1, 2], [1, 2])
    scores = found.cases.columns["mean_score"]
    report = RunFolder.existing(folder).report()["results"]
    assert sum(scores.total) / sum(scores.count) == pytest.approx(report["mean_score"])


def test_it_is_read_once_and_again_for_another_report(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """cases.json stands for the records while the report is the one that it was made of."""
    folder = RunFolder.existing(made("run", [("a", True)]))
    first = cases_of(folder)
    records = folder.records.read_bytes()
    folder.records.write_bytes(b"not read")
    assert cases_of(folder) == first
    (folder.path / "report.json").write_bytes((folder.path / "report.json").read_bytes() + b" ")
    folder.records.write_bytes(records)
    again = cases_of(folder)
    assert again.report != first.report
    assert again.cases == first.cases


def test_a_damaged_one_is_made_anew(made: Made) -> None:
    """As is one of another form."""
    folder = RunFolder.existing(made("run", [("a", True)]))
    first = cases_of(folder)
    for damage in (b"", b"{}", msgspec.json.encode({**msgspec.to_builtins(first), "schema": "evalq.cases/0"})):
        (folder.path / CASES).write_bytes(damage)
        assert cases_of(folder) == first
        with pytest.raises(WireError):
            decode_cases(damage, "here")


def test_cases_of_a_large_run_are_lines(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """None holds more than so many of them. A cut or changed file is made anew, or refused without records."""
    folder = RunFolder.existing(made("run", [("a", True)]))
    summing = Summing((Measure("pass_rate"), Measure("score", "score")), ("usage.cost",))
    for number in range(80):
        values = (float(number % 7 > 0), number / 90) if number % 11 else ()
        summing.add(
            Observation(f"c{number % 40}", values, number // 40, "kind", (number / 3,)), "in.jsonl", lambda: b"x"
        )
    cases = summing.summary(["c1"], ["c2"], collapse_p={f"c{number}": 0.1 for number in range(40)})
    run = msgspec.structs.replace(cases_of(folder), cases=cases, took=summing.took(cases))
    assert encode_in_lines(run) == msgspec.json.encode(run), "a small one is a document"
    monkeypatch.setattr("evalq.evalcore.model.lines.LONG", 25)
    data = encode_in_lines(run)
    lines = data.splitlines()
    assert max(len(re.findall(rb'"c[0-9]', line)) for line in lines) == 25
    for same in (data, data + b"\n"):
        assert msgspec.json.encode(decode_cases(same, "here")) == msgspec.json.encode(run)
    for damage in (
        b"\n".join(lines[:-1]),
        b"\n".join([*lines, lines[-1]]),
        b"\n".join([*lines, b'{"at":["cases"],"more":[]}']),
        b"\n".join([b"[1]", *lines[1:]]),
        data.replace(b'{"at":["cases"', b'{"at":["run"', 1),
        data.replace(b'"pieces":', b'"piece":', 1),
        data[:-9],
    ):
        with pytest.raises(WireError, match="here"):
            decode_cases(damage, "here")
        (folder.path / CASES).write_bytes(damage)
        assert cases_of(folder).cases.ids != run.cases.ids, "made anew from the records"


def test_it_has_the_version_that_judged_its_records(made: Made, command: Command, here: Path) -> None:
    """Not the present one: a run that an earlier version evaluated was judged by other rules, and no gate takes the
    two for one.
    """
    base, cand = (made(name, [(f"{number}", True) for number in range(40)]) for name in ("base", "cand"))
    before = cases_of(RunFolder.existing(cand)).version
    report = json.loads((base / "report.json").read_text())
    assert report["evaluator_version"] == before
    (base / "report.json").write_text(json.dumps({**report, "evaluator_version": "1"}))
    assert cases_of(RunFolder.existing(base)).version == "1"
    done = command("compare", str(base), str(cand))
    assert f"They were evaluated by version 1 and version {before} of verification." in done.stdout
    policy = here / "policy.yaml"
    policy.write_text("gates:\n  - {metric: verification.pass_rate, max_drop: 0.2}\ndeterministic: true\n")
    done = command("gate", str(cand), "--policy", str(policy), "--baseline", str(base))
    assert done.code == 4
    assert "the baseline has another version" in done.stdout
    (base / "report.json").write_text(json.dumps(report))
    done = command("gate", str(cand), "--policy", str(policy), "--baseline", str(base))
    assert done.code == 0, done.stdout
    assert f"{base} (40 equal" in done.stdout.replace("\\", "")


OFF = {
    "mean_score": ((1.5, -0.1, float("nan"), float("inf")), "from 0 to 1"),
    "pass_rate": ((0.5, 2.0, float("nan")), "0 or 1"),
}


@pytest.mark.parametrize(("measure", "value"), [(name, value) for name, (values, _) in OFF.items() for value in values])
def test_a_value_that_is_not_on_its_scale_is_refused_with_its_place(
    measure: str, value: float, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: a mean of such values has no interval, and passes any bound."""
    folder = RunFolder.existing(made("run", [("a", True), ("b", True)]))
    evaluator = plugins.get("verification")
    measures: Any = evaluator.measures
    at = [each.name for each in measures.measures].index(measure)

    def observe(line: Any) -> Observation | None:
        observation: Observation | None = measures.observe(line)
        if observation is None or observation.case != "b":
            return observation
        values = [*observation.values[:at], value, *observation.values[at + 1 :]]
        return msgspec.structs.replace(observation, values=tuple(values))

    monkeypatch.setattr(type(evaluator), "measures", msgspec.structs.replace(measures, observe=observe))
    with pytest.raises(InfrastructureError) as caught:
        cases_of(folder)
    assert "in.jsonl:2 (case b): verification gives" in str(caught.value)
    assert f"{measure} the value {value!r}, and its scale is {OFF[measure][1]}" in str(caught.value)


def test_a_record_that_was_edited_off_its_scale_is_refused(made: Made, command: Command) -> None:
    """As in a folder from elsewhere: 7 where the most is 1 decides nothing; what sums round up is on the scale."""
    folder = made("run", [("a", True), ("b", True)])
    records = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    line = json.loads(records[1])
    Path("policy.yaml").write_text("gates: [{metric: verification.mean_score, max: 0.9}]")
    for score, code in ((7, 3), (-1e300, 3), (1 + 1e-15, 4)):
        changed = json.dumps({**line, "score": score}, separators=(",", ":")) + "\n"
        (folder / "records.jsonl").write_text(records[0] + changed)
        (folder / "cases.json").unlink(missing_ok=True)
        done = command("gate", "run", "--policy", "policy.yaml")
        assert (done.code, "in.jsonl:2 (case b)" in done.stderr) == (code, code == 3), done


def test_a_run_without_records_says_so(made: Made) -> None:
    """A report that others made does not tell how each case went."""
    folder = RunFolder.existing(made("run", [("a", True)]))
    folder.records.unlink()
    with pytest.raises(UsageError, match="only the report is here"):
        cases_of(folder)


@pytest.mark.parametrize("name", plugins.built_in())
def test_the_mean_over_all_answers_is_the_report_s(name: str, here: Path) -> None:
    """Whatever an evaluator calls a measure stands in its report under that name, and is the same number."""
    evaluator: Any = plugins.get(name)
    (here / "data").mkdir()
    request = evaluator.sample.write(here / "data", 300, 7)
    run = evalq.evaluate(name, request.inputs, params=request.params, options=request.options, folder="run")
    assert run.path is not None
    found = cases_of(RunFolder.existing(run.path))
    assert found.cases.unattributed == 0
    for measure in found.cases.measures:
        column = found.cases.columns[measure.name]
        if name == "cooperation":
            wanted = [log[measure.name] for log in run.report["results"]["logs"].values()]
            assert column.total == pytest.approx([wanted[at] for at in _order(run.report["results"]["logs"])])
            continue
        value: Any = run.report["results"]
        for part in measure.name.split("."):
            value = value[part]
        if name == "checks":  # Its rates are means over cases, by weight.
            weight = {case["case"]: case["weight"] for case in run.report["results"]["by_case"]}
            weights = [weight[case] for case in found.cases.ids]
            means = [total / count for total, count in zip(column.total, column.count, strict=True)]
            weighted = sum(mean * each for mean, each in zip(means, weights, strict=True)) / sum(weights)
            assert weighted == pytest.approx(value, abs=1e-9)
            continue
        assert sum(column.total) / sum(column.count) == pytest.approx(value, abs=1e-9)


def test_cases_that_a_sweep_stopped_are_listed(here: Path) -> None:
    """Those alone that got fewer calls than planned, by what their lines say."""
    cases = sample_cases()[:4]
    with Path("outputs.jsonl").open("wb") as stream:
        write_outputs(stream, cases, repeats=20, seed=1, planned=100)
    run = evalq.evaluate("vs", str(GOLDEN), options={"outputs": ["outputs.jsonl"]}, folder="run")
    assert run.path is not None
    found = cases_of(RunFolder.existing(run.path)).cases
    assert set(found.stopped) == {case.id for case in cases} == set(found.ids)
    assert set(found.unrecorded or ()) == {case.id for case in sample_cases()} - set(found.ids)
    with Path("outputs.jsonl").open("wb") as stream:
        write_outputs(stream, cases, repeats=20, seed=1, planned=20)
    whole = evalq.evaluate("vs", str(GOLDEN), options={"outputs": ["outputs.jsonl"]}, folder="whole")
    assert whole.path is not None
    assert cases_of(RunFolder.existing(whole.path)).cases.stopped == []


def _order(names: dict[str, Any]) -> list[int]:
    listed = list(names)
    return [listed.index(name) for name in sorted(listed)]


def test_a_repeat_counts_once_and_order_does_not_matter() -> None:
    """The first output of a repeat counts; without a repeat every record does."""
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    observations = [Observation(f"c{rng.randrange(5)}", (float(rng.random() < 0.5),), repeat) for repeat in range(60)]
    observations += [Observation("c0"), Observation("", (1.0,)), Observation("c1", (None,), None, "x")]
    one, other = Summing((Measure("pass_rate"),)), Summing((Measure("pass_rate"),))
    for observation in observations:
        one.add(observation)
    shuffled = rng.sample(observations, len(observations))
    for observation in [*shuffled, *[s for s in shuffled if s.repeat is not None]]:
        other.add(observation)
    assert one.summary() == other.summary(), f"seed {seed}"
    summary = one.summary(["c1"])
    assert (summary.unattributed, sum(summary.missing), summary.collapsed) == (1, 1, ["c1"])
    assert sum(summary.columns["pass_rate"].count) == 60
    assert [sum(labels.values()) for labels in summary.labels] == [0, 1, 0, 0, 0]


def test_an_answer_counts_though_its_repeat_failed_before() -> None:
    """A recorded call that was made again after an error: no report passes over the answer, and no gate does."""
    failed, answered = Observation("a", repeat=0), Observation("a", (1.0,), 0)
    for observations in itertools.permutations([failed, failed, answered]):
        summing = Summing((Measure("pass_rate"),))
        for observation in observations:
            summing.add(observation)
        summary = summing.summary()
        assert (summary.columns["pass_rate"].count, summary.missing) == ([1], [0])
    lacking = Summing((Measure("pass_rate"),))
    for observation in (failed, failed, Observation("a", repeat=1)):
        lacking.add(observation)
    assert lacking.summary().missing == [2]


def test_a_repeat_counts_once_whatever_its_number() -> None:
    """Of outputs whose repeats are seeds or times, say, the report counts the first of each, too."""
    summing = Summing((Measure("pass_rate"),))
    for repeat in (0, 4095, 4096, 70_000, 2**53 - 1):
        for passed in (0.0, 1.0, 1.0):
            summing.add(Observation("a", (passed,), repeat))
    column = summing.summary().columns["pass_rate"]
    assert (column.count, column.total) == ([5], [0.0])


def test_a_repeat_of_two_inputs_is_two_answers(tmp_path: Path) -> None:
    """As in the report: ten answers that pass in one file and ten that fail in another are no pass rate of 1."""
    cases, ids = tmp_path / "cases.yaml", "ab"
    cases.write_text("cases: [{id: a, checks: [{contains: yes!}]}, {id: b, checks: [{contains: yes!}]}]")
    outputs = []
    for name, said in (("odd:1.jsonl", "yes!"), ("two.jsonl", "no")):
        outputs.append(tmp_path / name)
        lines = [{"case": case, "repeat": repeat, "output": said} for case in ids for repeat in (0, 1, 1)]
        outputs[-1].write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    found = evaluate_files("checks", cases, options={"outputs": outputs})
    counter = CaseCounter(plugins.get("checks"))
    counter.add(found.lines)
    summary = counter.cases(found.report, run="r", digest_of_report="0").cases
    assert (summary.columns["pass_rate"].count, summary.columns["pass_rate"].total) == ([4, 4], [2.0, 2.0])
    assert found.report["results"]["pass_rate"] == 0.5


@pytest.mark.parametrize(
    ("repeats", "missing"),
    [
        ({"a": [0, 1, 2], "b": [0, 1, 2]}, [0, 0]),  # all are there
        ({"a": [0, 2], "b": [0, 1, 2]}, [1, 0]),  # one in the middle is left out
        ({"a": [1, 2], "b": [0, 1, 2], "c": [2]}, [1, 0, 2]),  # the first ones
        ({"a": [0, 2, 4], "b": [1, 3, 4]}, [2, 2]),  # nobody has all
        ({"a": [0], "b": [0, 1, 2]}, [0, 0]),  # decided early
        ({"a": [1, 2, 3], "b": [1, 3]}, [0, 1]),  # counted from one
        ({"a": [7, 7001, 2**53 - 1], "b": [7, 2**53 - 1]}, [0, 1]),  # the same seeds for every case
        ({"a": [3, 1_000], "b": [4, 900], "c": [5, 800]}, [0, 0, 0]),  # each case has seeds of its own
        ({"a": [4_095, 4_096, 4_097], "b": [4_097]}, [0, 2]),  # in two blocks
    ],
)
def test_a_repeat_that_a_file_leaves_out_is_missing(repeats: dict[str, list[int]], missing: list[int]) -> None:
    """Otherwise a program that writes down only what succeeded would pass any gate; the order does not matter."""
    summing, backwards = Summing((Measure("pass_rate"),)), Summing((Measure("pass_rate"),))
    observations = [Observation(case, (1.0,), repeat) for case, each in repeats.items() for repeat in each]
    for observation in observations:
        summing.add(observation, "one.jsonl")
    for observation in [*observations[::-1], Observation("z", (1.0,), 5)]:
        backwards.add(observation, "one.jsonl" if observation.case != "z" else "another.jsonl")
    for each in (summing, backwards):
        found = left_out(each.repeats())
        assert [found.get(case, 0) for case in repeats] == missing


def test_a_gate_does_not_pass_a_file_that_leaves_out_what_failed(here: Path, command: Command) -> None:
    """Each answer that failed is left out: the pass rate rises from 80 % to 100 %, and the gate is no GO."""
    ids = [f"c{number}" for number in range(30)]
    (here / "cases.yaml").write_text(
        json.dumps({"cases": [{"id": case, "checks": [{"contains": "ok"}]} for case in ids]})
    )
    (here / "policy.yaml").write_text("gates: [{metric: checks.pass_rate, min: 0.5}]")
    for run in ("all", "passed"):
        lines = [
            {"case": case, "repeat": repeat, "output": f"{'ok' if passed else 'no'} {run} {repeat}"}
            for number, case in enumerate(ids)
            for repeat in range(5)
            if (passed := bool((number + repeat) % 5)) or run == "all"
        ]
        (here / f"{run}.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
        arguments = ("checks", "cases.yaml", "--outputs", f"{run}.jsonl", "--out", run, "--format", "none")
        assert command(*arguments, "--inline")[0] == 0
    assert command("gate", "all", "--policy", "policy.yaml")[0] == 0
    assert command("gate", "passed", "--baseline", "all", "--policy", "policy.yaml")[0] == 1


@pytest.mark.parametrize(
    ("base", "cand", "short"),
    [
        ([10] * 5, [10, 10, 10, 10, 7], {4: 3}),  # the last repeats of one case
        ([10] * 5, [5] * 5, {}),  # all cases have fewer
        ([10] * 5, [10, 10, 5, 5, 5], {2: 5, 3: 5, 4: 5}),  # of most cases, and not of all
        ([5] * 5, [5, 5, 5, 5, 20], {}),  # one case has more
        ([12] * 5, [9, 10, 7, 8, 6], {0: 1, 2: 3, 3: 2, 4: 4}),  # numbered anew, so that none has a gap
        ([5, 5, 5, 20, 20], [5, 5, 5, 20, 10], {4: 10}),  # as uneven as the baseline, but for one
        ([20, 20, 8, 4, 40], [5, 5, 2, 1, 8], {4: 2}),  # a quarter of the baseline's, but for one
        ([3, 1, 4, 5, 9], [2, 6, 5, 3, 8], {}),  # cases of a log
        (None, [10, 10, 10, 10, 7], {4: 3}),
        (None, [3, 1, 4, 5, 9], {}),
        ([10] * 5, [10, 10, 10, 10, 0], {}),  # absent, which counts by itself
        ([10] * 5, [0] * 5, {}),
        ([10], [7], {}),
    ],
)
def test_a_case_with_fewer_repeats_than_the_others_lacks_some(
    base: list[int] | None, cand: list[int], short: dict[int, int]
) -> None:
    """The baseline, or most cases, tell how many repeats a case should have; a case that was decided needs no more."""

    def summed(repeats: list[int], stopped: list[str]) -> CaseSummary:
        summing = Summing((Measure("pass_rate"),))
        for case, count in enumerate(repeats):
            for repeat in range(count):
                summing.add(Observation(f"c{case}", (1.0,) if repeat % 2 else (), repeat), "one.jsonl")
        return summing.summary(stopped=stopped)

    wanted = {f"c{case}": count for case, count in short.items()}
    before = summed(base, []) if base is not None else None
    assert short_repeats(summed(cand, []), before) == wanted
    assert short_repeats(summed(cand, list(wanted)), before) == {}


def test_a_gate_does_not_pass_a_file_without_the_last_repeats_of_failing_cases(here: Path, command: Command) -> None:
    """It names the cases. As recorded, too; a policy may say that repeats differ, and one repeat decides nothing."""
    ids = [f"c{number}" for number in range(40)]
    (here / "cases.yaml").write_text(
        json.dumps({"cases": [{"id": case, "checks": [{"contains": "ok"}]} for case in ids]})
    )
    demand = "gates: [{metric: checks.pass_rate, max_drop: 0.05}]\n"
    for name, more in (("policy", ""), ("uneven", "uneven_repeats: true\n"), ("missing", "missing: 0\n")):
        (here / f"{name}.yaml").write_text(demand + more)
    for run in ("base", "short", "one", "fewer"):
        lines = [
            {"case": case, "repeat": repeat, "output": f"ok {run} {number} {repeat}"}
            for number, case in enumerate(ids)
            for repeat in range(5 if run == "fewer" else 10)
            if not (run == "short" and number % 4 == 0 and repeat > 6) and (run, number, repeat) != ("one", 0, 9)
        ]
        (here / f"{run}.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
        arguments = ("checks", "cases.yaml", "--outputs", f"{run}.jsonl", "--out", run, "--format", "none")
        assert command(*arguments, "--inline")[0] == 0

    def gate(run: str, policy: str = "policy", *more: str) -> tuple[int, str]:
        code, out, _ = command("gate", run, "--baseline", "base", "--policy", f"{policy}.yaml", *more)
        return code, out

    code, out = gate("short")
    assert code == 4
    assert "10 cases have fewer repeats than the others: c0 (7 of 10), c12 (7 of 10), " in out
    assert gate("short", "uneven")[0] == 0
    assert gate("short", "policy", "--as-recorded")[0] == 4
    code, out = gate("one")
    assert code == 0, "it is GO even if that one had failed"
    assert "1 case has fewer repeats than the others: c0 (9 of 10)" in out
    assert gate("one", "missing")[0] == 4
    assert gate("fewer")[0] == 0


def test_what_calls_took_is_summed_over_all_outputs(tmp_path: Path) -> None:
    """Attempts that failed are paid too; the time is that of the answer."""
    path = tmp_path / "outputs.jsonl"
    failed = {"kind": "timeout", "latency_seconds": 9.0, "cost": 0.5}
    lines = [
        {"case": "a", "output": {}, "attempts": [failed, {"latency_seconds": number / 10, "prompt_tokens": 3}]}
        for number in range(1, 101)
    ]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, [*lines, {"case": "b", "error": "no"}])))
    found = usage_of(path)
    seconds = {"p50": 5.0, "p95": 9.5, "p99": 9.9}
    wanted = RunUsage(101, 1, 200, 50.0, 300, 0, seconds, each=found.each, untold=found.untold)
    assert msgspec.structs.replace(found, sample=[]) == wanted
    assert found.each == {"seconds": 5.05, "cost": 0.5, "prompt_tokens": 3.0}
    assert found.untold == {"cost": 100, "completion_tokens": 100}, "what failed may say nothing"


def test_runs_that_share_answers_are_known_by_some_of_them(tmp_path: Path) -> None:
    """And those of one target by its settings; a sample is no larger for more answers."""

    def used(seconds: range, config: str = "c") -> RunUsage:
        lines = [
            {"case": "a", "repeat": at, "config": config, "attempts": [{"latency_seconds": second / 7}]}
            for at, second in enumerate(seconds)
        ]
        (tmp_path / "outputs.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
        return usage_of(tmp_path / "outputs.jsonl")

    first, other, more = used(range(500)), used(range(1000, 1500), "d"), used(range(700))
    assert (first.config, other.config) == ("c", "d")
    assert len(first.sample) == len(used(range(5000)).sample) == 32
    assert used(range(500)) == first
    assert not set(first.sample) & set(other.sample)
    assert set(first.sample) & set(more.sample)  # it took 500 from a cache
