"""A matrix in a suite file: every combination once, by a clear name, strictly checked and in bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.errors import ConfigError, EvalqError, Paused
from evalq.evalcore.model.calls import Prompt
from evalq.producer.folder.job import folder_name
from evalq.producer.lifecycle.watch import Unwatched
from evalq.producer.suites.calls import planned_calls
from evalq.producer.suites.suite_file import SuitePlan, load_suite
from evalq.producer.sweep.options import SweepOptions, Wording, _worded, prompts_of
from tests.unit.comparing.conftest import Command

CASES = {"cases": [{"id": f"c{n}", "input": f"How much is {n}?", "checks": [{"contains": "x"}]} for n in range(3)]}
RUN: dict[str, Any] = {"evaluator": "checks", "name": "sup", "cases": "cases.yaml", "repeat": 5}


def _loaded(here: Path, run: dict[str, Any], **suite: Any) -> SuitePlan:
    for name in ("cases.yaml", "hard.yaml"):
        (here / name).write_text(yaml.safe_dump(CASES))
    (here / "suite.yaml").write_text(yaml.safe_dump({"runs": [run], **suite}, sort_keys=False))
    return load_suite(here / "suite.yaml")


def _matrix(**axes: Any) -> dict[str, Any]:
    return {**RUN, "matrix": axes}


def test_every_combination_is_a_run_of_its_own(here: Path) -> None:
    """In the order of the axes, named by what it is made of; parameters are chosen of its target."""
    suite = _loaded(here, _matrix(target=["a", "b"], temperature=[0, 0.2], model=["m"]))
    names = [f"sup[target={t},temperature={h},model=m]" for t in "ab" for h in ("0", "0.2")]
    assert [run.name for run in suite.runs] == names
    assert [run.live.target for run in suite.runs if run.live] == [
        f"{t}[model=m,temperature={h}]" for t in "ab" for h in ("0", "0.2")
    ]
    assert {(run.base, run.live.repeat) for run in suite.runs if run.live} == {("sup", 5)}
    assert sum(each.calls for each in planned_calls(suite)) == 4 * 15
    assert folder_name(names[1]) == "sup-target-a-temperature-0.2-model-m"


def test_some_are_left_out_and_others_added(here: Path) -> None:
    """By any number of their axes, and by all of them."""
    axes = {"target": ["a", "b"], "temperature": [0, 0.20]}
    more = {"exclude": [{"target": "b", "temperature": 0.2}], "include": [{"temperature": 1.0, "target": "a"}]}
    names = [run.labels for run in _loaded(here, _matrix(**axes, **more)).runs]
    assert [tuple(each.values()) for each in names] == [("a", "0"), ("a", "0.2"), ("b", "0"), ("a", "1")]


def test_inputs_and_prompts_vary_too(here: Path) -> None:
    """Files by their names, prompts as templates around each case's question and as system prompts."""
    (here / "brief.md").write_text("Be brief.\n")
    prompts = {"plain": "{input}", "brief": {"template": "Please: {input}", "system": {"file": "brief.md"}}}
    suite = _loaded(
        here,
        {"evaluator": "checks", "target": "a", "matrix": {"cases": ["cases.yaml", "hard.yaml"], "prompt": prompts}},
    )
    assert [run.name for run in suite.runs] == [
        f"checks[cases={c},prompt={p}]" for c in ("cases", "hard") for p in ("plain", "brief")
    ]
    asked = []
    for run in suite.runs[:2]:
        assert run.live is not None
        asked.append(next(prompts_of(run.evaluator, run.request, run.live)))
    assert (asked[0].text, asked[0].messages) == ("How much is 0?", ())
    assert asked[1].messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Please: How much is 0?"},
    )
    assert len({each.digest for each in asked}) == 2


def test_a_case_is_no_template(here: Path) -> None:
    """What stands in it is never taken for a place; a chat is worded at its end, and its system prompt replaced."""
    wording = Wording("<{input}>", "S")
    assert json.loads(_worded(Prompt("c", "", "say {input}"), wording).text)[1]["content"] == "<say {input}>"
    chat = ({"role": "system", "content": "old"}, {"role": "user", "content": "hi"})
    worded = _worded(Prompt("c", "", "", chat), wording)
    assert worded.messages == ({"role": "system", "content": "S"}, {"role": "user", "content": "<hi>"})
    with pytest.raises(ConfigError, match="case 'c' is a chat that ends with no text of its user"):
        _worded(Prompt("c", "", "", ({"role": "assistant", "content": "hi"},)), wording)
    request = Request([str(here / "cases.yaml")], {}, {})
    (here / "cases.yaml").write_text(yaml.safe_dump(CASES))
    plain = list(prompts_of(plugins.get("checks"), request, SweepOptions("a")))
    assert plain == list(prompts_of(plugins.get("checks"), request, SweepOptions("a", wording=Wording("{input}"))))


WRONG: list[tuple[dict[str, Any], str]] = [
    (_matrix(), r"suite\.yaml:\d+: runs\.0\.matrix: an axis is needed"),
    (_matrix(target=[]), r"runs\.0\.matrix\.target: must be a list of values"),
    (_matrix(target="a"), r"runs\.0\.matrix\.target: must be a list of values"),
    (_matrix(target=["a", "a"]), r"runs\.0\.matrix\.target\.1: a occurs twice"),
    (_matrix(target=["a", {"x": 1}]), r"runs\.0\.matrix\.target\.1: name its values"),
    (_matrix(target=["a"], temperature=[0.1, 0.10]), r"runs\.0\.matrix\.temperature\.1: 0\.1 occurs twice"),
    (_matrix(temperature=[1]), r"runs\.0\.matrix\.temperature: goes with target only"),
    ({**_matrix(target=["a"]), "target": "b"}, r"runs\.0\.matrix\.target: is in the run, too"),
    ({**_matrix(target=["a"]), "output": "x.md"}, r"runs\.0\.matrix: cannot have output"),
    (_matrix(target=["a"], prompt=["x"]), r"runs\.0\.matrix\.prompt: must be a mapping of names"),
    (
        _matrix(target=["a"], prompt={"x": "no place"}),
        r"suite\.yaml:10: runs\.0\.matrix\.prompt\.x: the template needs \{input\}",
    ),
    (
        _matrix(target=["a"], prompt={"x": {"system": {"file": "../p"}}}),
        r"runs\.0\.matrix\.prompt\.x\.system\.file: must be a file in",
    ),
    (
        {**RUN, "target": "a", "prompt": {"system": {"file": "p\0.md"}}},
        r"runs\.0\.prompt\.system\.file: p\0\.md cannot be read",
    ),
    (
        {**RUN, "target": "a", "prompt": {"system": {"file": "."}}},
        r"runs\.0\.prompt\.system\.file: \. cannot be read",
    ),
    (
        _matrix(target=["a"], prompt={"x": {"system": {"file": "no.md"}}}),
        r"runs\.0\.matrix\.prompt\.x\.system\.file: no\.md cannot be read",
    ),
    (_matrix(target=["a"], prompt={"x": {}}), r"runs\.0\.matrix\.prompt\.x: a template or a system prompt is needed"),
    (
        {**RUN, "target": "a", "prompt": {"system": {"file": "../p"}}},
        r"suite\.yaml:9: runs\.0\.prompt\.system\.file: must be a f",
    ),
    (
        _matrix(target=["a"], prompt={"x": {"templat": "{input}"}}),
        r"runs\.0\.matrix\.prompt\.x\.templat: unknown key \(known here: system, template",
    ),
    (_matrix(target=["a"], prompt={"x": "{input}"}, exclude=[{"prompt": 1}]), r"runs\.0\.matrix\.exclude"),
    (
        _matrix(target=["a"], prompt={"x": 5}),
        r"suite\.yaml:10: runs\.0\.matrix\.prompt\.x: Input should be an object, got 5$",
    ),
    (
        {"evaluator": "checks", "matrix": {"target": ["a"], "cases": {"easy": "cases.yaml", "odd": 5}}},
        r"suite\.yaml:8: runs\.0\.matrix\.cases\.odd",
    ),
    (
        {
            k: v
            for k, v in _matrix(target=["a"], cases=["cases.yaml"], include=[{"cases": "x", "target": "a"}]).items()
            if k != "cases"
        },
        r"matrix\.include\.0\.cases: must be one of",
    ),
    (_matrix(target=["a[t=1]"], t=[2]), r"runs\.0\.matrix\.target\.0: name its values"),
    (_matrix(target=[f"t{n}" for n in range(15)], x=list(range(14))), "210 combinations; at most 200 are run"),
    (_matrix(target=["a"], **{f"parameter_{n}": ["v" * 50] for n in range(4)}), "a name of over 200 letters"),
    (_matrix(target=["a"], exclude=[{"target": "b"}]), r"runs\.0\.matrix\.exclude\.0: excludes nothing"),
    (_matrix(target=["a"], exclude=[{"targt": "a"}]), r"runs\.0\.matrix\.exclude\.0\.targt: is no axis"),
    (_matrix(target=["a"], exclude=[{"target": "a"}]), r"runs\.0\.matrix\.exclude: no combination is left"),
    (_matrix(target=["a"], exclude=["a"]), r"runs\.0\.matrix\.exclude: must be a list of mappings"),
    (_matrix(target=["a"], t=[1], include=[{"target": "a"}]), r"runs\.0\.matrix\.include\.0: lacks t"),
    (_matrix(target=["a"], include=[{"target": "a"}]), r"runs\.0\.matrix\.include\.0: is already a combination"),
    (_matrix(target=["a"], repeat=[1, 5]), r"runs\.0\.matrix\.repeat: is a key of a run, not an axis"),
    (_matrix(target=["a"], **{"../x": [1]}), r"runs\.0\.matrix.*: cannot name a parameter"),
    ({**RUN, "matrix": [1]}, r"runs\.0\.matrix: "),
]


@pytest.mark.parametrize(("run", "reason"), WRONG, ids=range(len(WRONG)))
def test_mistakes_are_reported_with_their_place(here: Path, run: dict[str, Any], reason: str) -> None:
    """Line, key path and reason; nothing is run."""
    with pytest.raises(ConfigError) as caught:
        _loaded(here, run)
    assert re.search(reason, str(caught.value)), caught.value


def test_what_is_demanded_of_a_matrix_is_demanded_of_each_run(here: Path) -> None:
    """By its name; one of them is meant by its own, points and all."""
    one = "sup[target=a,temperature=0.2]"
    gates = [{"metric": "sup.pass_rate", "min": 0.5}, {"metric": f"{one}.pass_rate", "min": 0.9}]
    quarantine = [{"case": "c1", "reason": "flaky", "run": "sup"}]
    run = _matrix(target=["a"], temperature=[0, 0.2])
    policy = _loaded(here, run, policy={"gates": gates, "quarantine": quarantine}).policy
    assert policy is not None
    assert [(gate.run, gate.path, gate.min) for gate in policy.gates] == [
        ("sup[target=a,temperature=0]", "pass_rate", 0.5),
        (one, "pass_rate", 0.5),
        (one, "pass_rate", 0.9),
    ]
    assert [each.run for each in policy.quarantine] == ["sup[target=a,temperature=0]", one]
    with pytest.raises(ConfigError, match=r"policy\.gates\.0\.metric: sup\[target=b\] is no single run"):
        _loaded(here, run, policy={"gates": [{"metric": "sup[target=b].pass_rate", "min": 1}]})


def test_what_is_in_quarantine_in_every_run_is_so_in_those_of_a_matrix(here: Path) -> None:
    """Also where a run beside it is of no matrix."""
    (here / "o.jsonl").write_text("")
    runs = [
        _matrix(target=["a", "b"]),
        {"evaluator": "checks", "name": "own", "cases": "cases.yaml", "outputs": "o.jsonl"},
    ]
    policy = {"gates": [{"metric": "sup.pass_rate", "min": 0.5}], "quarantine": [{"case": "c1", "reason": "flaky"}]}
    loaded = _loaded(here, runs[0], runs=runs, policy=policy).policy
    assert loaded is not None
    assert [each.run for each in loaded.quarantine] == [""]
    assert [gate.run for gate in loaded.gates] == ["sup[target=a]", "sup[target=b]"]


def test_names_are_one_runs_each(here: Path) -> None:
    """A matrix has the name of no other run, and no second matrix."""
    for other in ({**RUN, "target": "a"}, _matrix(target=["a"])):
        (here / "cases.yaml").write_text(yaml.safe_dump(CASES))
        (here / "suite.yaml").write_text(yaml.safe_dump({"runs": [_matrix(target=["a"]), other]}))
        with pytest.raises(ConfigError, match=r"runs\.1\.name: sup.* is another run's name"):
            load_suite(here / "suite.yaml")


def test_a_dry_run_lists_all_and_calls_nobody(here: Path, command: Command) -> None:
    """Names, targets and calls, for people and as JSON; without a targets file or a server."""
    _loaded(here, _matrix(target=["a", "b"]))
    done = command("run", "suite.yaml", "--dry-run")
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "2 runs, 30 calls at most")
    assert "| sup\\[target=b\\] | checks | b | 3 x 5 | 15 |" in done.stdout
    listed = json.loads(command("run", "suite.yaml", "--dry-run", "--format", "json").stdout)
    assert [run["calls"] for run in listed["runs"]] == [15, 15]
    assert not (here / "evalq-runs").exists()


def test_a_dry_run_counts_what_judges_are_asked(here: Path, command: Command) -> None:
    """Of outputs that are to come, and of those that are there; they are calls as any others."""
    judged = {"cases": [{"id": f"c{n}", "input": "x", "checks": [{"rubric": "polite", "votes": 3}]} for n in range(2)]}
    (here / "judged.yaml").write_text(yaml.safe_dump(judged))
    (here / "o.jsonl").write_text('{"case": "c0", "output": "x"}\n')
    run = {"evaluator": "checks", "cases": "judged.yaml", "judge": "grader"}
    runs = [{**run, "name": "live", "target": "chat", "repeat": 4}, {**run, "name": "there", "outputs": "o.jsonl"}]
    (here / "suite.yaml").write_text(yaml.safe_dump({"runs": runs}))
    done = command("run", "suite.yaml", "--dry-run")
    assert (done.code, done.stdout.splitlines()[-1]) == (0, "2 runs, 35 calls at most")
    assert "| live | checks | chat | 2 x 4 | 8 | 24 |" in done.stdout
    assert "| there | checks |  |  |  | 3 |" in done.stdout


@pytest.mark.parametrize(
    ("error", "begun"), [(Paused("run r was paused"), 2), (Unwatched("r"), 1)], ids=["paused", "left"]
)
def test_a_suite_ends_in_order_where_one_of_its_runs_was_paused_or_is_watched_no_more(
    error: EvalqError, begun: int, here: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others of a paused one go on; Ctrl-C means all of them. 130, and no traceback."""
    (here / "cases.yaml").write_text(yaml.safe_dump(CASES))
    (here / "o.jsonl").write_text("")
    run = {"evaluator": "checks", "cases": "cases.yaml", "outputs": "o.jsonl"}
    (here / "suite.yaml").write_text(yaml.safe_dump({"runs": [run, run]}))
    tried = []

    def begin(*_: object, **__: object) -> None:
        tried.append(1)
        raise error

    monkeypatch.setattr("evalq.producer.commands.run.begin_or_join", begin)
    done = command("run", "suite.yaml", "--inline")
    assert (done.code, len(tried), "Traceback" in done.stderr) == (130, begun, False), done.stderr


def test_targets_that_cannot_be_called_are_reported_before_any_call(here: Path, command: Command) -> None:
    """Of every run, by its name: unknown targets and judges, choices that are not listed, a price that is lacking; no
    run is begun, and whoever waits for the decision finds the error.
    """
    run = _matrix(target=["chat", "dog"], temperature=[0, 2])
    _loaded(here, run, policy={"gates": [{"metric": "sup.pass_rate", "min": 1}]}, outputs=["gate.xml"])
    chat = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    listed = {**chat, "variable": {"temperature": {"min": 0, "max": 1}}}
    (here / "targets.yaml").write_text(json.dumps({"targets": {"chat": listed, "plain": chat}}))
    done = command("run", "suite.yaml", "--targets", "targets.yaml")
    assert (done.code, "evalq-runs" in {path.name for path in here.iterdir()}) == (2, False)
    for line in (
        "sup[target=chat,temperature=2]: target chat: temperature is a number from 0 to 1, and 2 is not",
        "sup[target=dog,temperature=0]: no calling process knows a target 'dog[temperature=0]' (known: chat, plain)",
        "sup[target=dog,temperature=2]: no calling process knows",
    ):
        assert line in done.stderr
    assert "sup[target=chat,temperature=0]" not in done.stderr
    assert "knows a target" in (here / "gate.xml").read_text()
    judged = {"cases": [{"id": "c", "input": "x", "checks": [{"rubric": "polite"}]}]}
    (here / "judged.yaml").write_text(yaml.safe_dump(judged))
    for more, why in (({"judge": "nobody"}, "'nobody'"), ({"judge": "chat", "max_cost": 1}, "'plain' has no price")):
        run = {"evaluator": "checks", "cases": "judged.yaml", "target": "plain", **more}
        (here / "suite.yaml").write_text(yaml.safe_dump({"runs": [run]}))
        done = command("run", "suite.yaml", "--targets", "targets.yaml")
        assert (done.code, why in done.stderr, (here / "evalq-runs").exists()) == (2, True, False), done.stderr


def test_a_gate_over_a_matrix_writes_its_table(here: Path, command: Command) -> None:
    """What the runs came to stands in the step's summary and in the JSON, whatever is decided."""
    run = {"evaluator": "checks", "name": "sup", "outputs": "o.jsonl", "matrix": {"cases": ["cases.yaml", "hard.yaml"]}}
    gates = [{"metric": "sup.pass_rate", "min": 0.01}]
    _loaded(here, run, policy={"gates": gates}, outputs=["summary.md", "gate.json"])
    lines = ({"case": f"c{n}", "repeat": repeat, "output": "x" * n} for n in range(3) for repeat in range(20))
    (here / "o.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = command("run", "suite.yaml", "--format", "none")
    assert done.code in (0, 4), done.stderr
    summary = (here / "summary.md").read_text()
    assert re.search(
        r"^## sup\n\n\| cases \|.*\n.*\n\| cases \| 0\.667 .*\n\| hard \| 0\.667 ", summary, re.MULTILINE
    ), summary
    matrices = json.loads((here / "gate.json").read_text())["matrices"]
    assert [row["labels"] for row in matrices["sup"]] == [{"cases": "cases"}, {"cases": "hard"}]
