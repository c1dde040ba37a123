"""Golden sets and registries: what they become, and every fault with its file and key path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.evalcore.contract.params import MAX_FILE_CHARACTERS, validate
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.vs import load_golden
from evalq.evalcore.evaluators.vs.golden import load_inputs
from evalq.evalcore.evaluators.vs.params import LEVELS, VsParams, default_agents, load_agents
from evalq.evalcore.evaluators.vs.sample import GOLDEN, sample_cases
from evalq.evalcore.naming import shorten
from tests.unit.vs.helpers import ENHANCED, FULL, LIGHT


def written(folder: Path, text: str, name: str = "golden.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, **groups: Any) -> list[dict[str, Any]]:
    """The cases of a golden set with these groups."""
    path = written(folder, yaml.safe_dump({"test_cases": groups}, allow_unicode=True, sort_keys=False))
    return load_golden(path, default_agents(), LEVELS)


def case(**changes: Any) -> dict[str, Any]:
    return {"id": "A", "agent": FULL, "input": {"q": "왜?"}, "expected": {}, **changes}


def faults(folder: Path, **groups: Any) -> list[str]:
    """The lines of the error a golden set with these groups raises, without the first."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, **groups)
    first, *rest = str(caught.value).split("\n  ")
    assert first == f"{folder / 'golden.yaml'}: the golden set is not valid"
    return rest


def test_a_case_becomes_plain_params(tmp_path: Path) -> None:
    """Phases and range apart, each expectation is key, operator and wanted value; of the input there is a digest."""
    expected = {
        "vs_phases": [4, 0, 1],
        "t_score_range": [0, 0.5],
        "modal_count": ">= 3",
        "loss": "<-0.25",
        "has_rebuttals": True,
        "count": 2,
        "ratio": 0.5,
        "severity": "major",
    }
    (made,) = loaded(tmp_path, full_vs_tests=[case(expected=expected)])
    digest = made.pop("input_sha256")
    assert len(digest) == 64
    assert made == {
        "id": "A",
        "agent": FULL,
        "phases": [0, 1, 4],
        "t_score_range": [0, 0.5],
        "expected": [
            {"key": "modal_count", "op": ">=", "want": 3},
            {"key": "loss", "op": "<", "want": -0.25},
            {"key": "has_rebuttals", "want": True},
            {"key": "count", "want": 2},
            {"key": "ratio", "want": 0.5},
            {"key": "severity", "want": "major"},
        ],
    }
    params = validate(VsParams, {"cases": [{**made, "input_sha256": digest}]}, "x")
    assert hash(params) == hash(validate(VsParams, params.model_dump(), "x"))


def test_the_digest_is_of_the_input_alone(tmp_path: Path) -> None:
    """The order of keys does not matter, a value does; an input that is left out is the null one."""
    one, two, three = loaded(
        tmp_path,
        full_vs_tests=[
            case(id="A", input={"a": 1, "b": 2}),
            case(id="B", input={"b": 2, "a": 1}),
            case(id="C", input={"a": 1, "b": 3}),
        ],
    )
    assert one["input_sha256"] == two["input_sha256"] != three["input_sha256"]
    (bare,) = loaded(tmp_path, full_vs_tests=[{"id": "A", "agent": FULL}])
    assert bare.keys() == {"id", "agent", "input_sha256"}
    assert bare["input_sha256"] == loaded(tmp_path, full_vs_tests=[case(input=None)])[0]["input_sha256"]


def test_groups_and_json(tmp_path: Path) -> None:
    """Cases come in the order of levels and of the file, an empty group is none, and JSON is read as well."""
    groups = {
        "light_vs_tests": [case(id="L", agent=LIGHT)],
        "enhanced_vs_tests": None,
        "full_vs_tests": [case(id="F2"), case(id="F1")],
    }
    path = written(tmp_path, json.dumps({"test_cases": groups}), "golden.json")
    assert [made["id"] for made in load_golden(path, default_agents(), LEVELS)] == ["F2", "F1", "L"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"id": None}, "id: missing"),
        ({"id": 7}, "id: must be text, found a number"),
        ({"id": ""}, "id: must be text, found a string"),
        ({"agent": "99-nobody"}, "agent: '99-nobody' is not in the registry of agents"),
        ({"agent": None}, "agent: null is not in the registry of agents"),
        ({"agent": LIGHT}, f"agent: {LIGHT} is registered as Light, but this is a Full case"),
        ({"notes": 1}, "notes: unknown key (known here: id, agent, input, expected)"),
        ({"expected": [1]}, "expected: must be a mapping, found a list"),
        (
            {"expected": {"n": "=> 3"}},
            "expected.n: '=> 3' is not a comparison: write one of >= > <= < == != and a number",
        ),
        (
            {"expected": {"n": ">= three"}},
            "expected.n: '>= three' is not a comparison: write one of >= > <= < == != and a number",
        ),
        (
            {"expected": {"n": ">= " + "9" * 5000}},
            f"expected.n: {shorten('9' * 5000)} is longer than 300 digits",
        ),
        ({"expected": {"n": "!"}}, "expected.n: '!' is not a comparison: write one of >= > <= < == != and a number"),
        ({"expected": {"n": None}}, "expected.n: must be a comparison, a boolean, a number or text, found null"),
        ({"expected": {"n": [1]}}, "expected.n: must be a comparison, a boolean, a number or text, found a list"),
        (
            {"expected": {"n": float("nan")}},
            "expected.n: must be a comparison, a boolean, a number or text, found a number",
        ),
        ({"expected": {"vs_phases": []}}, "expected.vs_phases: must be a list of at least one phase number"),
        ({"expected": {"vs_phases": [0, "1"]}}, "expected.vs_phases: must be a list of at least one phase number"),
        ({"expected": {"vs_phases": [True]}}, "expected.vs_phases: must be a list of at least one phase number"),
        (
            {"expected": {"t_score_range": [0.1]}},
            "expected.t_score_range: must be two numbers, the lowest and the highest score allowed",
        ),
        (
            {"expected": {"t_score_range": [0, float("inf")]}},
            "expected.t_score_range: must be two numbers, the lowest and the highest score allowed",
        ),
        (
            {"expected": {"t_score_range": [0.9, 0.1]}},
            "expected.t_score_range: the lowest score, 0.9, is above the highest, 0.1",
        ),
        (
            {"input": {None: 1}},
            "input: not plain data: Only dicts with str keys are supported when `order` is not `None`",
        ),
    ],
)
def test_a_fault_is_named_by_its_key_path(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    """One wrong value, one line, with the path from the top of the file."""
    assert faults(tmp_path, full_vs_tests=[case(id="first"), case(**changes)]) == [
        f"test_cases.full_vs_tests[1].{fault}"
    ]


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    """A user mends them all before the next try; a repeated id names where it was first."""
    found = faults(
        tmp_path,
        full_vs_tests=[case(), case(agent=ENHANCED), "x"],
        enhanced_vs_tests={"id": "B"},
        medium_vs_tests=[],
    )
    assert found == [
        "test_cases.medium_vs_tests: unknown key (known here: full_vs_tests, enhanced_vs_tests, light_vs_tests)",
        "test_cases.full_vs_tests[1].id: 'A' is already the id of test_cases.full_vs_tests[0]",
        f"test_cases.full_vs_tests[1].agent: {ENHANCED} is registered as Enhanced, but this is a Full case",
        "test_cases.full_vs_tests[2]: must be a mapping, found a string",
        "test_cases.enhanced_vs_tests: must be a list of cases, found an object",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("test_cases: {full_vs_tests: []}", "test_cases: has no case"),
        (
            "{}",
            r"test_cases: must be a mapping of groups \(full_vs_tests, enhanced_vs_tests, light_vs_tests\), found null",
        ),
        ("cases: []\ntest_cases: {}", "cases: unknown key"),
        ("- 1", "the top level must be a mapping"),
        ("a: [", ":1: not YAML"),
        ("a: " + "[" * 500, "nested too deeply"),
    ],
)
def test_files_that_are_no_golden_set(tmp_path: Path, text: str, reason: str) -> None:
    """Each says what is wrong with the file."""
    with pytest.raises(ConfigError, match=reason):
        load_golden(written(tmp_path, text), default_agents(), LEVELS)


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    """The path and the system's reason."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_golden(tmp_path / "none.yaml", default_agents(), LEVELS)


def test_a_huge_file_is_not_even_parsed(tmp_path: Path) -> None:
    """Beyond MAX_FILE_CHARACTERS the size is the answer."""
    path = written(tmp_path, "")
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_CHARACTERS + (1 << 20))
    with pytest.raises(ConfigError, match="longer than 16 MiB"):
        load_golden(path, default_agents(), LEVELS)


def test_the_default_registry_has_the_twenty_agents() -> None:
    """Five Full, six Enhanced, nine Light, numbered 01 to 20."""
    agents = default_agents()
    assert sorted(agent.id[:2] for agent in agents) == [f"{number:02}" for number in range(1, 21)]
    by_level = {level.name: {a.id[:2] for a in agents if a.level == level.name} for level in LEVELS}
    assert by_level == {
        "Full": {"02", "03", "05", "10", "16"},
        "Enhanced": {"01", "04", "06", "07", "08", "09"},
        "Light": {"11", "12", "13", "14", "15", "17", "18", "19", "20"},
    }


def test_the_bundled_golden_set_covers_every_agent() -> None:
    """Every agent of the registry has a case, every Full one at least three."""
    cases = [made.agent for made in sample_cases()]
    for agent in default_agents():
        assert cases.count(agent.id) >= (3 if agent.level == "Full" else 1)
    assert GOLDEN.name == "golden.yaml"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("agents: {a: Full}\nmore: 1", "more: unknown key"),
        ("agents: []", "agents: must be a mapping of agent ids to levels"),
        ("agents: {}", "agents: must be a mapping of agent ids to levels"),
        ("agents: {a: 1}", r"agents\.a: both the id and the level must be text"),
        ("agents: {1: Full}", r"agents\.1: both the id and the level must be text"),
    ],
)
def test_faults_of_a_registry(tmp_path: Path, text: str, reason: str) -> None:
    """A registry file names its wrong key too."""
    with pytest.raises(ConfigError, match=reason):
        load_agents(written(tmp_path, text, "agents.yaml"))


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"agents": [{"id": "a", "level": "Fool"}]}, "agents: a has the unknown level 'Fool'"),
        ({"cases": [{"id": "x", "agent": "nobody"}]}, "cases: x names the agent 'nobody', not in agents"),
        ({"cases": [{"id": "x", "agent": FULL}] * 2}, "cases: x occurs twice"),
        ({"agent": "nobody"}, "agent: 'nobody' is not in agents"),
        ({"level": "full"}, "level: 'full' is none of Enhanced, Full, Light"),
        ({"collapse": {"collapse_share": 1.0}}, "collapse.collapse_share"),
        ({"collapse": {"most_common": 0}}, "collapse.most_common"),
        ({"collapse": {"share": 0.7}}, "collapse.share: unknown key"),
        ({"min_t_score_spread": "0.3"}, "min_t_score_spread"),
    ],
)
def test_params_that_do_not_fit_together(params: dict[str, Any], reason: str) -> None:
    """What names something that is not there, or is out of range, is an error with its key."""
    with pytest.raises(ConfigError, match=reason):
        validate(VsParams, params, "params")


def test_targets_are_asked_the_inputs(tmp_path: Path) -> None:
    """Text as it is, other data as JSON; a case that is not called needs none, and others are named by their place."""
    cases = [case(id="A", input="why?"), case(id="B"), case(id="C", input=""), case(id="D", input=None)]
    path = written(tmp_path, yaml.safe_dump({"test_cases": {"full_vs_tests": cases}}, allow_unicode=True))
    assert load_inputs(path, ["A", "B"]) == {"A": "why?", "B": '{"q":"왜?"}'}
    with pytest.raises(ConfigError) as caught:
        load_inputs(path, ["A", "C", "D"])
    first, *rest = str(caught.value).split("\n  ")
    assert first == f"{path}: these cases have no input to send to the target"
    assert rest == [f"test_cases.full_vs_tests[{at}].input: missing; the target needs it" for at in (2, 3)]


def test_a_number_that_python_refuses_is_a_fault_like_any(tmp_path: Path) -> None:
    """It has a limit of some thousand digits."""
    (fault,) = faults(tmp_path, full_vs_tests=[case(expected={"modal_count": "== " + "1" * 5000})])
    assert "modal_count: 1111" in fault
    assert "longer than 300 digits" in fault


REGISTRY = """
version: "6.7.0"
registry: {total_agents: 3}
agents:
  "A2-theoretical-framework-architect":
    name: "Theoretical Framework Architect"
    legacy_id: "02"
    vs_level: "Full"
    vs_phases: [0, 1, 2, 3, 4, 5]
  "A5-paradigm-worldview-advisor": {legacy_id: null, vs_level: "ENHANCED"}
  "I1-paper-retrieval-agent": {model: sonnet}
"""


def test_the_agents_own_registry_is_read_with_its_levels_and_former_ids(tmp_path: Path) -> None:
    """Objects with `vs_level` in any case; golden sets may name an agent by the id that it had before."""
    agents = {entry["id"]: entry["level"] for entry in load_agents(written(tmp_path, REGISTRY, "agents.yaml"))}
    assert agents == {
        "A2-theoretical-framework-architect": "Full",
        "02-theoretical-framework-architect": "Full",
        "A5-paradigm-worldview-advisor": "Enhanced",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agents: {a: {model: x}}", "none has a vs_level"),
        ("agents: {a: {vs_level: 3}}", "agents.a.vs_level"),
        ("agents: {a: {vs_level: Full, legacy_id: [1]}}", "agents.a.legacy_id"),
        ("agents: {A1-x: {vs_level: Full, legacy_id: '01'}, 01-x: {vs_level: Light}}", "01-x is named twice"),
        ("agents: {a: full, b: {vs_level: Full}}", "agents.b"),
    ],
)
def test_a_registry_that_says_nothing_clear_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """With the file and the key."""
    with pytest.raises(ConfigError, match=said):
        load_agents(written(tmp_path, text, "agents.yaml"))
