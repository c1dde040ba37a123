"""What may be chosen of a target: what its file lists and nothing else; each choice has settings of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.workers.callers.choices import facts_of, known_facts
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.targets import NamedTarget, load_targets
from evalq.workers.targets.answers import Call
from evalq.workers.targets.config import OWN_KINDS, choose
from evalq.workers.targets.http import fill
from evalq.workers.targets.target import config_digest
from evalq.workers.targets.variable import canonical_name, choices_of, split_name

OPENAI = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m", "options": {"seed": 3}}
HTTP = {"kind": "http", "url": "http://127.0.0.1:1/", "body": {"q": "{prompt}", "t": "{temperature}"}}
COMMAND = {"kind": "command", "argv": ["/bin/cat"]}


def _load(folder: Path, **targets: Any) -> dict[str, NamedTarget]:
    (folder / "targets.yaml").write_text(json.dumps({"targets": targets}))
    return load_targets(folder / "targets.yaml")


def _chosen(targets: dict[str, NamedTarget], name: str) -> NamedTarget:
    found = choose(targets, name)
    assert found is not None
    return found


def test_one_target_has_one_name() -> None:
    """Whatever the order of its choices, and however its numbers are written."""
    name = "chat[model=m-2,temperature=0.2]"
    for written in (name, "chat[temperature=0.20, model=m-2]", "chat[model=m-2,temperature=2e-1]"):
        assert canonical_name(written) == name
    assert canonical_name("chat") == "chat"
    assert split_name("chat[t=1.0]") == ("chat", {"t": "1"})


NO_NAMES = [
    "chat[",
    "chat[]",
    "chat[a]",
    "chat[a=]",
    "chat[a=1,a=2]",
    "chat[a=b]c",
    "chat[A=1]",
    "chat[a=x/y]",
    "[a=1]",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    """With how it is written."""
    with pytest.raises(UsageError, match="target "):
        split_name(name)


GIVEN: list[tuple[Any, str, Any]] = [
    ([0, 0.7], "0.70", 0.7),
    (["small", "large"], "large", "large"),
    ([True, False], "false", False),
    ({"long": "a text, with anything"}, "long", "a text, with anything"),
    ({"min": 0, "max": 1}, "0.25", 0.25),
    ({"min": 0, "max": 10}, "3.0", 3),
]


@pytest.mark.parametrize(("given", "label", "value"), GIVEN)
def test_values_are_found_by_their_names(given: Any, label: str, value: Any) -> None:
    """As they are in the file, numbers as numbers."""
    assert choices_of(given).value(split_name(f"t[x={label}]")[1]["x"]) == value


@pytest.mark.parametrize(
    "given", [[], {}, [1, 1.0], [None], [["a"]], {"a b": 1}, {"min": 2, "max": 1}, {"min": "0", "max": 1}, 5]
)
def test_choices_that_are_none_are_refused(given: Any, tmp_path: Path) -> None:
    """With target and key."""
    with pytest.raises(ConfigError, match=r"targets\.chat: wrong parameters\n +variable"):
        _load(tmp_path, chat={**OPENAI, "variable": {"model": given}})


@pytest.mark.parametrize("name", ["base_url", "headers", "api_key_env", "timeout_seconds", "messages", "retries"])
def test_hosts_keys_and_limits_are_nobodys_choice(tmp_path: Path, name: str) -> None:
    """Not even where the file says so; other kinds have parameters alone."""
    with pytest.raises(ConfigError, match=f"callers cannot override {name}"):
        _load(tmp_path, chat={**OPENAI, "variable": {name: ["x"]}})
    with pytest.raises(ConfigError, match="body: has no place"):
        _load(tmp_path, own={**HTTP, "body": {"q": "{prompt}"}, "variable": {"url": ["x"]}, "parameters": {"url": "y"}})
    run: Any = _chosen(_load(tmp_path, run={**COMMAND, "variable": {name: ["x"]}}), f"run[{name}=x]").target
    assert (run.argv, run.timeout_seconds, run.parameters) == (("/bin/cat",), 120.0, {name: "x"})


@pytest.mark.parametrize(
    ("variable", "reason"),
    [({"model": [1]}, "model"), ({"json_mode": ["x"]}, "json_mode"), ({"system_prompt": ["../p.md"]}, "folder"),
     ({"system_prompt": ["none.md"]}, "no such file")],
)  # fmt: skip
def test_each_value_has_to_fit(tmp_path: Path, variable: dict[str, Any], reason: str) -> None:
    """The fault shows when the file is read, not when somebody chooses it."""
    with pytest.raises(ConfigError, match=reason):
        _load(tmp_path, chat={**OPENAI, "variable": {k: {"v": v[0]} for k, v in variable.items()}})


def test_what_is_not_listed_cannot_be_chosen(tmp_path: Path) -> None:
    """Neither a value nor a parameter; a target that is not there is none."""
    targets = _load(tmp_path, chat={**OPENAI, "variable": {"model": ["m", "n"], "temperature": {"min": 0, "max": 1}}})
    for name, reason in (
        ("chat[model=o]", "model is one of m, n, and o is not"),
        ("chat[temperature=1.5]", "temperature is a number from 0 to 1, and 1.5 is not"),
        ("chat[base_url=x]", r"callers cannot override base_url \(variable there: model, temperature\)"),
    ):
        with pytest.raises(UsageError, match=reason):
            choose(targets, name)
        with pytest.raises(UsageError, match=reason):
            facts_of({"chat": target_facts(targets["chat"])}, name)
        assert known_facts({"chat": target_facts(targets["chat"])}, name) is None
    assert choose(targets, "other[model=m]") is None
    assert facts_of({}, "chat") is None


def test_a_choice_takes_its_place_in_the_entry(tmp_path: Path) -> None:
    """Of each kind: keys and request of chat completions, places of a template, what a program is given."""
    targets = _load(
        tmp_path,
        chat={**OPENAI, "variable": {"model": ["n"], "temperature": [0.5]}},
        own={**HTTP, "variable": {"temperature": [0.5]}, "parameters": {"temperature": 0}},
        run={**COMMAND, "variable": {"style": {"plain": "say it plainly"}}},
    )
    chat: Any = _chosen(targets, "chat[temperature=0.5,model=n]").target
    assert (chat.model, chat.options, chat.base_url) == ("n", {"seed": 3, "temperature": 0.5}, OPENAI["base_url"])
    call = Call("{temperature}", "a")
    for name, heat in (("own", 0), ("own[temperature=0.5]", 0.5)):
        own: Any = _chosen(targets, name).target
        filled = fill(own.body, {**own.parameters, **call.fillings()})
        assert filled == {"q": "{temperature}", "t": heat}
    run: Any = _chosen(targets, "run[style=plain]").target
    assert call.values(run.parameters)["parameters"] == {"style": "say it plainly"}
    assert "parameters" not in call.values()
    assert _chosen(targets, "chat[model=n]").pool == targets["chat"].pool == "chat"


def test_each_choice_has_settings_of_its_own(tmp_path: Path) -> None:
    """What may be chosen changes nothing for who chooses nothing; callers and producers know the same digest of a
    choice, and it changes with all that it depends on, and with nothing else.
    """
    (tmp_path / "plain.md").write_text("plain")
    (tmp_path / "strict.md").write_text("strict")
    variable = {"system_prompt": {"plain": "plain.md", "strict": "strict.md"}, "temperature": {"min": 0, "max": 1}}
    entry = {**OPENAI, "system_prompt": "plain.md"}
    bare = config_digest(_load(tmp_path, chat=entry)["chat"])

    def digests(**more: Any) -> dict[str, str]:
        targets = _load(tmp_path, chat={**entry, "variable": variable, **more})
        names = ("chat", "chat[temperature=0]", "chat[temperature=1]", "chat[system_prompt=strict]")
        found = {name: config_digest(_chosen(targets, name)) for name in names}
        facts = {"chat": target_facts(targets["chat"])}
        assert {name: known.config for name in names if (known := facts_of(facts, name))} == found
        return found

    first = digests()
    assert first["chat"] == bare
    assert len(set(first.values())) == 4
    assert digests(max_concurrency=7) == first
    assert not set(digests(model="other").values()) & set(first.values())
    (tmp_path / "strict.md").write_text("stricter")
    again = digests()
    assert [name for name in first if again[name] != first[name]] == ["chat[system_prompt=strict]"]


EMBEDDINGS = {"kind": "embeddings", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


@pytest.mark.parametrize("kind", sorted(OWN_KINDS))
def test_every_kind_has_choices(tmp_path: Path, kind: str) -> None:
    """A kind that is added says where they go, or cannot be read at all."""
    python = {"kind": "python", "function": "json:dumps"}
    every: list[dict[str, Any]] = [OPENAI, HTTP, COMMAND, EMBEDDINGS, python]
    every += [
        {"kind": "azure", "base_url": "http://127.0.0.1:1", "model": "m", "api_version": "v"},
        {"kind": "bedrock", "model": "m", "region": "us-east-1"},
        {"kind": "vertex", "model": "m", "project": "p"},
        *({"kind": kind, "model": "m"} for kind in ("gemini", "responses")),
        {"kind": "anthropic", "model": "m", "api_version": "2023-06-01"},
    ]
    entries = {each["kind"]: each for each in every}
    entry = {**entries[kind], "variable": {"temperature": {"min": 0, "max": 1}}}
    if kind == "http":
        entry["parameters"] = {"temperature": 0}
    targets = _load(tmp_path, one=entry)
    assert config_digest(_chosen(targets, "one[temperature=0.5]")) != config_digest(targets["one"])
