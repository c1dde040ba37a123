"""The targets file: strict, every fault with its file and key path, and no value of it in any error."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.errors import ConfigError
from evalq.workers.callers.target_sessions import target_facts
from evalq.workers.ledger.heartbeats import CallerFacts
from evalq.workers.targets import Caller, load_targets
from evalq.workers.targets.providers.openai import OpenAiTarget
from evalq.workers.targets.target import RetryRule, config_digest

SECRET = "sk-0123456789"  # noqa: S105 - nobody's


def _load(folder: Path, text: str) -> None:
    (folder / "targets.yaml").write_text(text)
    load_targets(folder / "targets.yaml")


def test_every_kind_is_read(tmp_path: Path) -> None:
    """Targets come by name in the file's order, with their defaults."""
    (tmp_path / "targets.yaml").write_text(
        "targets:\n"
        "  a: {kind: http, url: 'http://h/x', body: {q: '{prompt}'}, answer: 'a[0].b'}\n"
        "  b: {kind: openai, base_url: 'http://h/v1', model: m, retries: {server: {times: 9}}}\n"
        "  c: {kind: command, argv: [cat]}\n"
        "  d: {kind: python, function: 'json:dumps', output: text}\n"
    )
    known = load_targets(tmp_path / "targets.yaml")
    assert list(known) == ["a", "b", "c", "d"]
    b = known["b"].target
    assert isinstance(b, OpenAiTarget)
    assert b.rule("server") == RetryRule(times=9)
    assert b.rule("rate_limit").times > 0
    assert b.rule("auth").times == b.rule("quota").times == b.rule("refused").times == 0


@pytest.mark.parametrize(
    "price",
    [
        "{}",
        "{prompt_per_million: 3, completion_per_million: 15}",
        "{prompt_per_million: 3, cached_per_million: 0.3, cache_write_per_million: 0, reasoning_per_million: 1}",
        "{per_call: 1}",
    ],
)
def test_what_a_process_reports_of_a_target_is_read_by_producers(tmp_path: Path, price: str) -> None:
    """Whatever its price leaves open: a heartbeat that cannot be read is that of a process that is not there."""
    limits = f"requests_per_minute: 60, tokens_per_minute: 1000, max_concurrency: 2, price: {price}"
    temperatures = "variable: {temperature: {min: 0, max: 1}}"
    (tmp_path / "targets.yaml").write_text(
        "targets:\n"
        f"  a: {{kind: openai, base_url: 'http://h/v1', model: m, {limits}, {temperatures}}}\n"
        f"  b: {{kind: command, argv: [cat], {limits}}}\n"
    )
    facts = {name: target_facts(named) for name, named in load_targets(tmp_path / "targets.yaml").items()}
    written = msgspec.json.encode(CallerFacts("host", 1, "code", 8, 0, facts))
    assert msgspec.json.decode(written, type=CallerFacts).targets == facts


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "t: {kind: openai, base_url: 'http://h', model: m, modle: x}",
            "targets.t: wrong parameters\n  modle: unknown",
        ),
        (f"t: {{kind: openai, base_url: 'http://h', model: m, api_key: {SECRET}}}", "api_key: unknown key"),
        (f"t: {{kind: openai, base_url: 'http://h', model: m, api_key_env: {SECRET}}}", "api_key_env: String should"),
        (f"t: {{kind: openai, base_url: 'http://h', model: m, headers: '{SECRET}'}}", "headers: Input should be"),
        (f"t: {{kind: openai, base_url: 'http://h', model: m, headers: {{X: [{SECRET}]}}}}", "headers.X: Input should"),
        (f"t: {{kind: openai, base_url: 'http://h/v1?k={SECRET}', model: m}}", "base_url: String should match"),
        ("t: {kind: soap}", "targets.t.kind: must be one of anthropic, azure, bedrock, "),
        ("t: {url: 'http://h'}", "targets.t.kind: must be one of"),
        ("t: 5", "targets.t: must be a mapping with a kind"),
        ("'a b': {kind: command, argv: [x]}", "targets.a b: a name is"),
        ("204: {kind: command, argv: [x]}", "targets.204: a name must be text, and YAML reads this one as something"),
        ("t: {kind: http, url: 'ftp://h', body: {}}", "url: String should match"),
        ("t: {kind: http, url: 'http://h:99999/', body: {}}", "url: Value error, Port out of range"),
        ("t: {kind: http, url: 'http://[::1/v1', body: {}}", "url: Value error, Invalid IPv6"),
        ("t: {kind: http, url: 'http://:80/', body: {}}", "url: Value error, not an address: it needs a host"),
        (f"t: {{kind: http, url: 'http://h', body: {{}}, headers: {{X: 'schlüssel {SECRET}'}}}}", "headers.X: String"),
        (f't: {{kind: http, url: "http://h", body: {{}}, headers: {{X: "a\\n{SECRET}"}}}}', "headers.X: String"),
        ("t: {kind: http, url: 'http://h', body: {}, headers: {'a b': c}}", "headers.a b"),
        ("t: {kind: http, url: 'http://h', body: {}, max_bytes: 8388609}", "max_bytes: Input should be less"),
        ('t: {kind: command, argv: [x, "a\\0b"]}', "argv.1: String should match"),
        (
            "t: {kind: http, url: 'http://h', body: {}, answer: 'a..b'}",
            "answer: Value error, not a path at character 2",
        ),
        ("t: {kind: http, url: 'http://h', body: {}, timeout_seconds: 0}", "timeout_seconds: Input should be greater"),
        ("t: {kind: command, argv: []}", "argv: Tuple should have at least 1 item"),
        ("t: {kind: command, argv: [x], retries: {sever: {}}}", "retries.sever"),
        ("t: {kind: python, function: nowhere}", "function: String should match"),
        (
            "t: {kind: openai, base_url: 'http://h', model: m, system_prompt: ../p.md}",
            "system_prompt: must be a file in",
        ),
        ("t: {kind: openai, base_url: 'http://h', model: m, system_prompt: /etc/passwd}", "system_prompt: must be a"),
        ("t: {kind: openai, base_url: 'http://h', model: m, system_prompt: p.md}", "system_prompt: no such file in"),
        ("t: {kind: openai, base_url: 'http://h', model: m, json_schema: s.json}", "json_schema: no such file in"),
    ],
)
def test_a_fault_names_file_and_key_and_shows_no_value(tmp_path: Path, entry: str, said: str) -> None:
    """What is wrong where; and a key that was written into the file by mistake is not repeated."""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, f"targets:\n  {entry}\n")
    assert said in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/targets.yaml: targets.")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("targets: {}", "targets: must be a mapping"), ("target: {}", "target: unknown key"), ("targets: [", "not YAML")],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The same above the targets."""
    with pytest.raises(ConfigError, match=said):
        _load(tmp_path, text)


@pytest.mark.parametrize("value", [None, "", "schlüssel", "a\nb"])
def test_a_key_that_is_not_there_is_reported_by_its_variable(tmp_path: Path, value: str | None) -> None:
    """Nothing is called without the key; what stands in its place is not shown."""
    (tmp_path / "t.yaml").write_text(
        "targets: {t: {kind: openai, base_url: 'http://h', model: m, api_key_env: MY_KEY}}"
    )
    with pytest.raises(ConfigError, match="MY_KEY") as caught:
        Caller(load_targets(tmp_path / "t.yaml")["t"], {} if value is None else {"MY_KEY": value})
    assert not value or value not in str(caught.value)


def test_a_function_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    """The import's own error, with the target's name."""
    for path, said in (
        ("nowhere_at_all:f", "No module named"),
        ("json:nothing", "no attribute"),
        ("json:__doc__", "not a function"),
    ):
        (tmp_path / "t.yaml").write_text(f"targets: {{t: {{kind: python, function: '{path}'}}}}")
        with pytest.raises(ConfigError, match=f"target t: function: {path}.*{said}"):
            asyncio.run(_opened(tmp_path / "t.yaml"))


async def _opened(file: Path) -> None:
    async with Caller(load_targets(file)["t"], {}):
        pass


def test_a_schema_that_is_not_json_is_named(tmp_path: Path) -> None:
    """Like every file that is wrong: before anything is called."""
    (tmp_path / "answer.json").write_text("{oh")
    (tmp_path / "t.yaml").write_text(
        "targets: {t: {kind: openai, base_url: 'http://h', model: m, json_schema: answer.json}}"
    )
    with pytest.raises(ConfigError, match=r"target t: answer\.json: json_schema is not JSON"):
        Caller(load_targets(tmp_path / "t.yaml")["t"], {})


@pytest.mark.parametrize("name", ["p.md", "[p].md", "{agent}.md", "below/../p.md"])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_prompt_file_counts_however_its_path_is_written(tmp_path: Path, name: str, absolute: bool) -> None:
    """Another system prompt is another target: what was recorded of the first is not taken for it."""
    (tmp_path / "below").mkdir()
    path = tmp_path / "t.yaml"
    entry = {"kind": "openai", "base_url": "http://h", "model": "m"}
    path.write_text(
        json.dumps({"targets": {"t": {**entry, "system_prompt": str(tmp_path / name) if absolute else name}}})
    )
    digests = set()
    for text in ("one", "two"):
        (tmp_path / name.replace("{agent}", "critic")).write_text(text)
        digests.add(config_digest(load_targets(path)["t"]))
    assert len(digests) == 2


def test_which_agent_has_which_prompt_is_part_of_what_answers_depend_on(tmp_path: Path) -> None:
    """Also where each agent has a folder, and all their files one name."""
    path = tmp_path / "targets.yaml"
    entry = {"kind": "openai", "base_url": "http://h", "model": "m", "system_prompt": "prompts/{agent}/system.md"}
    path.write_text(json.dumps({"targets": {"t": entry}}))
    for agent in ("critic", "writer"):
        (tmp_path / "prompts" / agent).mkdir(parents=True)
        (tmp_path / "prompts" / agent / "system.md").write_text(agent)
    before = config_digest(load_targets(path)["t"])
    (tmp_path / "prompts" / "writer").rename(tmp_path / "prompts" / "z")
    (tmp_path / "prompts" / "critic").rename(tmp_path / "prompts" / "writer")
    assert config_digest(load_targets(path)["t"]) != before


def test_a_file_that_is_not_named_in_utf_8_may_lie_among_prompts(tmp_path: Path) -> None:
    """No agent is called so; the target can be called all the same."""
    (tmp_path / "critic.md").write_text("one")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.md")).write_text("two")
    entry = {"kind": "openai", "base_url": "http://h", "model": "m", "system_prompt": "{agent}.md"}
    (tmp_path / "t.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    assert config_digest(load_targets(tmp_path / "t.yaml")["t"])


def test_limits_and_keys_are_no_part_of_what_answers_depend_on(tmp_path: Path) -> None:
    """A longer timeout, another bound or another key's name: what was recorded before still counts."""
    path = tmp_path / "t.yaml"
    entry: dict[str, object] = {"kind": "http", "url": "http://h", "body": {}}
    path.write_text(json.dumps({"targets": {"t": entry}}))
    before = config_digest(load_targets(path)["t"])
    limits = {"timeout_seconds": 9, "max_bytes": 5000, "tokens_per_call": 7, "max_concurrency": 3, "api_key_env": "K"}
    for key, value in limits.items():
        path.write_text(json.dumps({"targets": {"t": entry | {key: value}}}))
        assert config_digest(load_targets(path)["t"]) == before, key
    path.write_text(json.dumps({"targets": {"t": entry | {"answer": "a"}}}))
    assert config_digest(load_targets(path)["t"]) != before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://h:8000/v1", "https://elsewhere:9/v1", True),
        ("http://h/agent?version=1", "http://h/agent?version=2", False),
        ("http://h/one", "http://h/two", False),
        ("http://h/one", "http://g/one/", True),
        ("http://h/a?b=1&a=2&token=x", "http://u:p@h/a?a=2&b=1&token=y", True),
    ],
)
def test_an_agent_that_moves_is_the_same_and_its_path_says_which_it_is(
    tmp_path: Path, one: str, other: str, same: bool
) -> None:
    """A new port or host is no other target, unless `identity` says so."""

    def digest_of(url: str, **more: str) -> str:
        entry = {"kind": "http", "url": url, "body": {}, **more}
        (tmp_path / "t.yaml").write_text(json.dumps({"targets": {"t": entry}}))
        return config_digest(load_targets(tmp_path / "t.yaml")["t"])

    assert (digest_of(one) == digest_of(other)) is same
    assert len({digest_of(one), digest_of(one, identity="release 2"), digest_of(one, identity="release 3")}) == 3


def test_a_models_server_may_have_another_address(tmp_path: Path) -> None:
    """The model, and not where it runs, is part of what answers depend on."""
    digests = []
    for url, model in (("http://h:1/v1", "m"), ("http://g:2/other", "m"), ("http://h:1/v1", "n")):
        entry = {"kind": "openai", "base_url": url, "model": model}
        (tmp_path / "t.yaml").write_text(json.dumps({"targets": {"t": entry}}))
        digests.append(config_digest(load_targets(tmp_path / "t.yaml")["t"]))
    assert digests[0] == digests[1] != digests[2]
