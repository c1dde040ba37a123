"""What the configuration, the rules file and the options make of a request, and how their mistakes are reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import ConfigError, EvalqError, UsageError
from evalq.evalcore.evaluators.cooperation import CooperationParams, evaluator
from evalq.evalcore.evaluators.cooperation.experiment import load_experiment, write_summary

CONFIG = """\
experiment:
  name: vow
  seed: 42
  dry_run: true
  log_path: logs/events.jsonl
  metrics_path: out/metrics.json
evaluation:
  cooperative_decisions: [Share, give]
  resource_key: wood
world:
  size: 9
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with its log, in a folder of its own."""
    folder = tmp_path / "vow"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "events.jsonl").write_text('{"turn": 1, "agent": "a", "decision": "share"}\n')
    path = folder / "config.yaml"
    path.write_text(CONFIG)
    return path


def asked(*inputs: str, params: dict[str, Any] | None = None, **options: Any) -> Request:
    """What the command makes of a command line, completed."""
    return evaluator.command.request(Request(list(inputs), params or {}, options))


def test_a_configuration_names_the_log_the_rules_and_the_metrics_file(config: Path) -> None:
    """Its paths are relative to its own folder; other sections are left alone."""
    request = asked(config=str(config), log=None, out=None, rules=None)
    assert request.inputs == [str(config.parent / "logs/events.jsonl")]
    assert request.options["out"] == str(config.parent / "out/metrics.json")
    params = validate(CooperationParams, request.params, "params")
    assert params.rules.cooperative_decisions == ("give", "share")
    assert params.rules.betrayal_decisions == ("betray", "defect", "sabotage", "steal")
    assert (params.rules.resource_key, params.dry_run) == ("wood", True)


def test_metrics_stand_beside_a_configuration_that_names_no_place(tmp_path: Path) -> None:
    """Without metrics_path they are metrics.json in the configuration's folder; empty sections are none."""
    path = tmp_path / "c.yaml"
    path.write_text("experiment:\nevaluation:\n")
    log = tmp_path / "events.jsonl"
    log.touch()
    request = asked(str(log), config=str(path))
    assert request.options["out"] == str(tmp_path / "metrics.json")
    assert validate(CooperationParams, request.params, "params") == CooperationParams()


def test_options_come_before_the_configuration(config: Path, tmp_path: Path) -> None:
    """--log, --out and --rules override what the configuration says, rules key by key."""
    log, rules = tmp_path / "other.jsonl", tmp_path / "rules.json"
    log.touch()
    rules.write_text('{"resource_key": "clay", "betrayal_decisions": []}')
    request = asked(config=str(config), log=str(log), out="m.json", rules=str(rules), params={"skip_bad_lines": True})
    assert (request.inputs, request.options["out"]) == ([str(log)], "m.json")
    params = validate(CooperationParams, request.params, "params")
    assert params.rules.model_dump() == {
        "cooperative_decisions": ("give", "share"),
        "betrayal_decisions": (),
        "resource_key": "clay",
    }
    assert params.skip_bad_lines


def test_params_stand_between_configuration_and_rules_file(config: Path, tmp_path: Path) -> None:
    """Each source is laid over the one before, key by key."""
    rules = tmp_path / "rules.json"
    rules.write_text('{"resource_key": "clay"}')
    params = {"rules": {"resource_key": "iron", "betrayal_decisions": ["lie"]}, "dry_run": False}
    request = asked(config=str(config), rules=str(rules), params=params)
    assert request.params["rules"] == {
        "cooperative_decisions": ["give", "share"],
        "betrayal_decisions": ["lie"],
        "resource_key": "clay",
    }
    assert request.params["dry_run"] is False


def test_without_a_configuration_there_is_no_metrics_file_unless_asked(tmp_path: Path) -> None:
    """Plain logs go to the run's report alone; --log names one as well as an argument does."""
    log = tmp_path / "events.jsonl"
    log.touch()
    assert asked(str(log)).options["out"] is None
    assert asked(log=str(log)).inputs == [str(log)]
    assert asked(str(log), log_dry_run=True).params == {"dry_run": True}
    assert asked(str(log)).params == {}


def test_the_request_given_is_left_as_it_was(config: Path) -> None:
    """Completing a request makes a new one."""
    request = Request([], {"rules": {"resource_key": "iron"}}, {"config": str(config)})
    evaluator.command.request(request)
    assert request == Request([], {"rules": {"resource_key": "iron"}}, {"config": str(config)})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("evaluation: {cooperative: [a]}", ["evaluation.cooperative: unknown key", "cooperative_decisions"]),
        ("experiment: {log_path: [a]}", ["experiment.log_path:"]),
        ("evaluation: {cooperative_decisions: join}", ["evaluation.cooperative_decisions:", '"join"']),
        ("evaluation: {betrayal_decisions: [1]}", ["evaluation.betrayal_decisions.0:"]),
        ("evaluation: {resource_key: null}", ["evaluation.resource_key:"]),
        ("evaluation: [a]", ["evaluation:"]),
        ("experiment: {dry_run: 'yes'}", ["experiment.dry_run:", '"yes"']),
        ("- a", ["mapping"]),
        ("a: [", ["not YAML"]),
    ],
)
def test_a_wrong_configuration_is_reported_by_file_and_key(tmp_path: Path, text: str, parts: list[str]) -> None:
    """The message names the file, the key's path and what is known there."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        asked("x", config=str(path))
    assert all(part in str(caught.value) for part in ["c.yaml", *parts])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"resource": "x"}', "resource: unknown key"),
        ('{"cooperative_decisions": "join"}', "cooperative_decisions:"),
        ('{"evaluation": {}}', "evaluation: unknown key"),
        ("{", "not JSON"),
        ("[]", "mapping"),
    ],
)
def test_a_wrong_rules_file_is_reported_by_file_and_key(tmp_path: Path, text: str, part: str) -> None:
    """A rules file holds the three keys and nothing else."""
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        asked("x", rules=str(path))
    assert "rules.json" in str(caught.value)
    assert part in str(caught.value)


def test_a_request_for_no_log_two_logs_or_one_file_for_many_is_refused(config: Path, tmp_path: Path) -> None:
    """Usage errors say what to do."""
    bare = tmp_path / "bare.yaml"
    bare.write_text("{}")
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).touch()
    a, b = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    refused: list[tuple[type[EvalqError], str, Any]] = [
        (UsageError, "no log: name one", lambda: asked()),
        (UsageError, "no experiment.log_path", lambda: asked(config=str(bare))),
        (UsageError, "not both", lambda: asked(a, log=b)),
        (UsageError, "one log", lambda: asked(a, b, out="m.json")),
        (UsageError, "one log", lambda: asked(a, b, config=str(config))),
        (UsageError, "one log", lambda: asked(str(tmp_path), out="m.json")),
        (ConfigError, "cannot be read", lambda: asked(a, config=str(tmp_path / "none.yaml"))),
    ]
    for error, part, ask in refused:
        with pytest.raises(error, match=part):
            ask()


def test_a_log_that_is_not_there_yet_can_be_asked_for(config: Path, tmp_path: Path) -> None:
    """Who follows it waits for it; who runs it misses it when it is read."""
    missing = str(tmp_path / "none.jsonl")
    assert asked(config=str(config), log=missing).inputs == [missing]
    with pytest.raises(UsageError, match="one log"):
        asked(missing, missing, out="m.json")


def test_every_option_is_declared_once() -> None:
    """The names that a request is read by are those of the declared options."""
    names = [option.name for option in evaluator.command.options]
    assert names == ["config", "log", "out", "rules", "log_dry_run", "skip_bad_lines"]
    assert json.loads(CooperationParams(skip_bad_lines=True).model_dump_json())["skip_bad_lines"] is True


def test_a_simulations_own_configuration_is_taken(tmp_path: Path) -> None:
    """Keys of the simulation's own, under ``experiment`` and in other sections, are left alone; rules are checked."""
    path = tmp_path / "upstream.yaml"
    path.write_text(
        "experiment: {name: vow, seed: 7, max_turns: 40, endpoint: 'http://127.0.0.1:1/v1', log_path: logs/e.jsonl}\n"
        "agents: [{id: a, persona: miser}]\nenvironment: {size: [4, 4]}\nevaluation: {resource_key: iron}\n"
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "e.jsonl").touch()
    found = asked(config=str(path))
    assert (found.inputs, found.params) == ([str(tmp_path / "logs" / "e.jsonl")], {"rules": {"resource_key": "iron"}})
    path.write_text("experiment: {max_turns: 40}\nevaluation: {max_turns: 40}\n")
    with pytest.raises(ConfigError, match=r"evaluation\.max_turns: unknown key"):
        asked("x", config=str(path))


OUTSIDE = [
    "/etc/hostname",
    "../other/events.jsonl",
    "logs/../../other/events.jsonl",
    "link.jsonl",
    "door/*.jsonl",
    "*.jsonl",
]


@pytest.mark.parametrize("key", ["log_path", "metrics_path", "summary_path", "report_path"])
@pytest.mark.parametrize("named", OUTSIDE)
def test_a_configuration_names_no_file_outside_its_folder(named: str, key: str, config: Path) -> None:
    """Neither to be read nor to be written, by a path, a link or a pattern; who is there may name it."""
    other = config.parent.parent / "other"
    other.mkdir()
    (other / "events.jsonl").write_text('{"turn": 1, "agent": "a", "decision": "share"}\n')
    (config.parent / "link.jsonl").symlink_to(other / "events.jsonl")
    (config.parent / "door").symlink_to(other)
    config.write_text(f"experiment: {{{key}: {json.dumps(named)}}}")
    where = f"{config}: experiment.{key}: a cases file does not choose the path "
    with pytest.raises(UsageError, match=re.escape(where)):
        load_experiment(config)
    log = str(config.parent / "logs/events.jsonl")
    if key == "log_path":
        with pytest.raises(UsageError, match=re.escape(where)):
            asked(config=str(config))
        assert asked(log, config=str(config)).inputs == [log]
        assert asked(log=log, config=str(config)).inputs == [log]
    elif key == "metrics_path":
        with pytest.raises(UsageError, match=re.escape(where)):
            asked(log, config=str(config))
        assert asked(log, config=str(config), out="m.json").options["out"] == "m.json"
    else:
        assert asked(log, config=str(config)).inputs == [log]
        with pytest.raises(UsageError, match=re.escape(where)):
            write_summary({"config": str(config), "metrics": log})
    assert [path.name for path in other.iterdir()] == ["events.jsonl"]


def test_a_configuration_of_the_current_folder_names_what_lies_in_it(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a path without a folder; what is not there yet, too."""
    monkeypatch.chdir(config.parent)
    found = load_experiment("config.yaml")
    assert (found.log, found.metrics) == ("logs/events.jsonl", Path("out/metrics.json"))
