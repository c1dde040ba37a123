"""`--judge` on the command line and in suites: what is refused before anything is paid, and what it would take."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import OutputQuestion, Request, live_calls
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.evaluators.checks.inputs import complete_request, evaluation_request, prompts
from evalq.evalcore.evaluators.checks.stages import judge_stage, other_answers, outputs_to_judge
from evalq.evalcore.model.calls import Output, pack_vector
from evalq.producer.cli import cli
from evalq.producer.suites.suite_file import load_suite

JUDGED = """
defaults: {input: "Say it.", checks: [{rubric: polite, votes: 3}, {prefer: Go., weight: 0}]}
cases: [{id: a}, {id: b, judge: own}]
"""
PLAIN = "cases: [{id: a, input: x, checks: [{contains: x}]}]\n"
DECIDING = "cases: [{id: a, input: x, checks: [{any: [{rubric: x}]}], thresholds: {pass-rate: 0.9}}]\n"
COMPARED = "cases: [{id: a, input: x, checks: [{prefer: true}]}, {id: b, input: x, checks: [{prefer: true}]}]\n"
OUTPUTS = '{"case": "a", "repeat": 0, "output": "x"}\n{"case": "b", "repeat": 0, "error": "lost"}\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with outputs and a targets file."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVALQ_BROKER", "EVALQ_TARGETS", "EVALQ_JUDGE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "outputs.jsonl").write_text(OUTPUTS)
    command = {"kind": "command", "argv": ["cat"]}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": command, "grader": command}}))
    return tmp_path


def said(cases: str, *args: str) -> tuple[int, str]:
    """(exit code, what is said) of `evalq checks` over ``cases``, in this process."""
    Path("cases.yaml").write_text(cases)
    done = CliRunner().invoke(cli, ["checks", "cases.yaml", *args, "--format", "none", "--out", "run"])
    assert done.exception is None or isinstance(done.exception, SystemExit | UsageError | ConfigError), done.exception
    return done.exit_code, f"{done.output} {done.exception}"


LIVE = ("--target", "chat", "--targets", "targets.yaml")


@pytest.mark.parametrize(
    ("cases", "args", "says"),
    [
        (JUDGED, LIVE, "case a needs a judge: name one with --judge NAME"),
        (PLAIN, (*LIVE, "--judge", "grader"), "no check of the cases asks a judge"),
        (DECIDING, (*LIVE, "--judge", "grader", "--stop", "when-decided"), "a judge decides case a"),
        (JUDGED, (*LIVE, "--judge", "grader", "--detach", "--broker", "redis://127.0.0.1:1"), "goes with no judge"),
        (
            JUDGED,
            ("--outputs", "outputs.jsonl", "--judge", "grader", "--inline"),
            "live calls from here need a targets file",
        ),
        (COMPARED, (*LIVE, "--judge", "grader"), "`prefer: true` compares with --against OUTPUTS"),
        (JUDGED, (*LIVE, "--judge", "grader", "--against", "outputs.jsonl"), "no check of the cases is `prefer: true`"),
        (
            COMPARED,
            ("--outputs", "outputs.jsonl", "--against", "outputs.jsonl", "--inline"),
            "--against needs a judge: add --judge",
        ),
        ("cases: [{id: a, judge: 5, input: x, checks: [{rubric: x}]}]", LIVE, "judge: must be the name of a target"),
        ("cases: [{id: a, input: x, checks: [{prefer: true, at: $.x}]}]", LIVE, "needs a text to compare with"),
    ],
)
def test_what_cannot_be_judged_is_refused(here: Path, cases: str, args: tuple[str, ...], says: str) -> None:
    """With a sentence that says what to do, and no folder left."""
    code, printed = said(cases, *args)
    assert code != 0
    assert says in printed, printed
    assert not (here / "run").exists()


def test_a_judge_that_decides_nothing_lets_a_sweep_stop(here: Path) -> None:
    """Of weight 0 its checks are shown, and the others decide."""
    cases = here / "cases.yaml"
    cases.write_text(DECIDING.replace("{any: [{rubric: x}]}", "{rubric: x, weight: 0}, {contains: x}"))
    asked = Request([str(cases)], {}, {"judge": "grader"})
    assert live_calls(plugins.get("checks")).stopping(asked) is not None


def test_a_dry_run_says_what_judging_takes(here: Path) -> None:
    """Of live outputs as many as are planned, of recorded ones as many as can be judged; nobody is called."""
    code, printed = said(JUDGED, *LIVE, "--judge", "grader", "--repeat", "5", "--dry-run")
    assert code == 0, printed
    assert "2 cases x 5 = 10 calls" in printed
    assert "about the outputs: 20 questions to grader = 20 calls" in printed
    assert "about the outputs: 10 questions x 3 votes to grader = 30 calls" in printed
    code, printed = said(
        JUDGED, "--outputs", "outputs.jsonl", "--judge", "grader", "--targets", "targets.yaml", "--dry-run"
    )
    assert code == 0, printed
    assert "1 question x 3 votes to grader = 3 calls" in printed


@pytest.mark.parametrize(
    ("keys", "target", "cases"),
    [
        ({"target": "chat", "repeat": 3, "judge": "grader"}, "chat", ["a", "b"]),
        ({"outputs": "outputs.jsonl", "judge": "grader"}, "", None),
    ],
)
def test_a_suite_names_a_judge(here: Path, keys: dict[str, Any], target: str, cases: list[str] | None) -> None:
    """For live outputs and for recorded ones, with budgets for both."""
    from evalq.producer.suites.calls import listed_cases

    (here / "cases.yaml").write_text(JUDGED)
    run = {"evaluator": "checks", "cases": "cases.yaml", "max_calls": 50, **keys}
    (here / "suite.yaml").write_text(json.dumps({"suite": "s", "runs": [run]}))
    (planned,) = load_suite(here / "suite.yaml").runs
    assert planned.live is not None
    assert (planned.live.target, planned.live.max_calls) == (target, 50)
    assert listed_cases(planned) == cases


def test_a_check_before_a_case_before_nobody_says_who_judges(here: Path) -> None:
    """The check's own judge, else the command's, else the case's."""
    cases = here / "cases.yaml"
    cases.write_text(
        "defaults: {judge: house}\n"
        "cases: [{id: a, input: x, checks: [{rubric: x, judge: own}, {rubric: y, votes: 3}, {prefer: z}]}]\n"
    )
    judge_stage = live_calls(plugins.get("checks")).judge_stage
    assert judge_stage is not None
    for judge, other in (("", "house"), ("grader", "grader")):
        stage = judge_stage.begin(Request([str(cases)], {}, {"judge": judge}))
        assert stage is not None
        assert stage.count_questions() == {("own", 1): 1, (other, 3): 1, (other, 1): 2}


def test_another_runs_answers_are_those_of_the_same_repeat(here: Path) -> None:
    """Of several the first; what is no output is passed over, and nobody is asked about an answer without another."""
    (here / "cases.yaml").write_text(COMPARED)
    lines = ["{", '{"case":"a","repeat":0,"output":"first"}', '{"case":"a","repeat":0,"output":"second"}',
             '{"case":"a","repeat":1,"error":"lost"}', '{"case":"b","output":{"n":1},"text":"whole"}']  # fmt: skip
    (here / "other.jsonl").write_text("\n".join(lines))
    judge_stage = live_calls(plugins.get("checks")).judge_stage
    assert judge_stage is not None
    stage = judge_stage.begin(
        Request([str(here / "cases.yaml")], {}, {"judge": "j", "against": str(here / "other.jsonl")})
    )
    assert stage is not None
    asked = [stage.questions(b'{"case":"%s","repeat":%d,"output":"mine"}' % each) for each in
             ((b"a", 0), (b"a", 1), (b"b", 0))]  # fmt: skip
    assert [len(each) for each in asked] == [2, 0, 2]
    assert "\nfirst\n" in asked[0][0].prompt.text
    assert "\nsecond\n" not in asked[0][0].prompt.text
    assert asked[0][0].prompt.text.index("\nmine\n") < asked[0][0].prompt.text.index("\nfirst\n")
    assert asked[0][1].prompt.text.index("\nfirst\n") < asked[0][1].prompt.text.index("\nmine\n")
    assert "\nwhole\n" in asked[2][0].prompt.text


def test_what_asked_for_judging_is_done_with_once_it_is_recorded(here: Path) -> None:
    """A finished sweep is evaluated by its outputs alone, whoever was asked on the way."""
    (here / "cases.yaml").write_text(PLAIN)
    for name in ("judge", "against", "embedder"):
        asked = Request([str(here / "cases.yaml")], {}, {"target": "chat", name: "x"})
        done = evaluation_request(asked, here / "outputs.jsonl", here)
        assert complete_request(done).inputs == [str(here / "outputs.jsonl")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"outputs": ("outputs.jsonl",), "judge": "j"}, "--judge asks a target, which takes a sweep"),
        ({"outputs": ("outputs.jsonl",), "embedder": "e"}, "--embedder asks a target, which takes a sweep"),
        ({"outputs": ("outputs.jsonl",), "against": "o"}, "--against needs a judge: add --judge NAME"),
        ({}, "checks needs recorded outputs or a target: evalq checks CASES"),
    ],
)
def test_what_takes_a_sweep_is_none_of_recorded_outputs(here: Path, options: dict[str, Any], says: str) -> None:
    """It says what would do it."""
    (here / "cases.yaml").write_text(PLAIN)
    with pytest.raises(UsageError) as caught:
        complete_request(Request([str(here / "cases.yaml")], {}, options))
    assert str(caught.value).startswith(says)


def test_a_selection_needs_a_file_of_cases(here: Path) -> None:
    """Before anything else is looked at."""
    with pytest.raises(UsageError, match="checks needs a cases file: evalq checks CASES"):
        complete_request(Request([], {}, {"outputs": ("outputs.jsonl",)}))


def test_many_cases_without_an_input_are_named_briefly(here: Path) -> None:
    """Ten of them, and how many more."""
    (here / "cases.json").write_text(json.dumps({"cases": [{"id": f"c{at}", "expected": "x"} for at in range(12)]}))
    with pytest.raises(ConfigError) as caught:
        list(prompts(Request([str(here / "cases.json")], {}, {})))
    message = str(caught.value)
    assert message.endswith(", ".join(f"c{at}" for at in range(10)) + " and 2 more")


def test_a_folder_of_another_run_is_searched_for_its_lines(here: Path) -> None:
    """Packed or not, of either ending; what else lies there is no output."""
    folder = here / "other"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"case": "a", "repeat": 0, "output": "one"}\n')
    (folder / "b.ndjson.gz").write_bytes(gzip.compress(b'{"case": "a", "repeat": 1, "output": {"n": 1}}\n'))
    (folder / "c.txt").write_text('{"case": "a", "repeat": 2, "output": "three"}\n')
    (folder / "d.jsonl").write_text('[]\n{"case": 5, "output": "x"}\n{"case": "a", "repeat": true, "output": "x"}\n')
    assert other_answers(str(folder)) == {("a", 0): "one", ("a", 1): '{"n":1}'}


def test_judges_and_embedders_are_asked_in_one_stage(here: Path) -> None:
    """Each gets the answers to its own questions, and a line keeps those of both."""
    checks = [{"rubric": "polite"}, {"min-length": 1}]
    case = {"id": "a", "checks": checks, "diversity": {"by": "embedding", "embedder": "vectors"}}
    (here / "cases.json").write_text(json.dumps({"cases": [case]}))
    judge_stage = live_calls(plugins.get("checks")).judge_stage
    assert judge_stage is not None
    stage = judge_stage.begin(Request([str(here / "cases.json")], {}, {"judge": "grader"}))
    assert stage is not None
    assert dict(stage.count_questions()) == {("grader", 1): 1, ("vectors", 1): 1}
    data = b'{"case": "a", "repeat": 0, "output": "Hello"}'
    asked = stage.questions(data)
    assert [each.target for each in asked] == ["grader", "vectors"]
    vector = base64.b64encode(pack_vector([1, 2])).decode()
    said = {"grader": b'{"pass": true}', "vectors": json.dumps({"vector": vector}).encode()}

    def recorded(question: OutputQuestion) -> list[Output]:
        prompt, target = question.prompt, question.target
        return [Output(0, prompt.case, "", 0, prompt.digest, target, "c", msgspec.Raw(said[target]))]

    joined = stage.add_replies(data, recorded)
    record = json.loads(joined)
    assert [vote["judge"] for vote in record["judgements"]] == ["grader"]
    assert record["embedding"]["target"] == "vectors"
    assert [each.target for each in stage.recorded_replies(joined)] == ["grader", "vectors"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"embedder": "e"}, "--embedder: no case counts its answers by embedding"),
        (
            {"judge": "j"},
            "--judge: no check of the cases asks a judge (there are: rubric, factual, score, prefer, state)",
        ),
    ],
)
def test_who_is_named_and_asked_nothing_is_refused(here: Path, options: dict[str, str], says: str) -> None:
    """A name that does nothing is a mistake."""
    (here / "cases.yaml").write_text(PLAIN)
    with pytest.raises(UsageError) as caught:
        judge_stage(Request([str(here / "cases.yaml")], {}, options))
    assert str(caught.value).startswith(says)


def test_without_anything_to_ask_there_is_no_stage(here: Path) -> None:
    """And recorded outputs are asked about only where somebody is named."""
    (here / "cases.yaml").write_text(PLAIN)
    request = Request([str(here / "cases.yaml")], {}, {"outputs": ("o.jsonl",)})
    assert judge_stage(request) is None
    assert outputs_to_judge(request) == []
    for name in ("judge", "embedder"):
        assert outputs_to_judge(Request(request.inputs, {}, {**request.options, name: "x"})) == ["o.jsonl"]
