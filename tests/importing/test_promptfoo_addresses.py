"""Which address and which key an imported target has: those that the configuration gives, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, write
from evalq.workers.targets import load_targets

OPENAI = "https://api.openai.com/v1"


def imported(folder: Path, *providers: Any) -> Imported:
    """What becomes of a configuration with these providers."""
    config = {"prompts": ["{{q}}"], "providers": [*providers],
              "tests": [{"vars": {"q": "x"}, "assert": [{"type": "contains", "value": "x"}]}]}  # fmt: skip
    (folder / "promptfooconfig.yaml").write_text(yaml.safe_dump(config))
    return sources.read("promptfoo", folder / "promptfooconfig.yaml", ImportRequest())


def chat(**config: Any) -> dict[str, Any]:
    """A provider of chat completions."""
    return {"id": "openai:chat:small", "label": "t", "config": config}


@pytest.mark.parametrize(
    "config",
    [
        {"apiBaseUrl": "{{env.INNER_URL}}", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "https://{{env.INNER_HOST}}/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "${INNER_URL}", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "{% if x %}https://a{% endif %}"},
        {"apiHost": "{{ env.INNER_HOST }}", "apiKeyEnvar": "INNER_KEY"},
        {"apiHost": "inner.example/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiHost": "https://inner.example", "apiKeyEnvar": "INNER_KEY"},
        {"apiHost": 5, "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "inner.example:8000/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "//inner.example/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "ftp://inner.example/v1", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "https://", "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": "https://inner example/v1"},
        {"apiBaseUrl": ["https://inner.example/v1"], "apiKeyEnvar": "INNER_KEY"},
        {"apiBaseUrl": {"url": "https://inner.example"}, "apiKeyEnvar": "INNER_KEY"},
    ],
)
def test_an_address_that_cannot_be_read_is_no_other_one(tmp_path: Path, config: dict[str, Any]) -> None:
    """A template or an address without a scheme: no target, a note with its place, and never another server's."""
    found = imported(tmp_path, chat(**config))
    assert found.targets == {}
    notes = [note for note in found.notes if note.what == "openai:chat:small"]
    assert len(notes) == 1, found.notes
    assert "by hand" in notes[0].why
    assert "promptfooconfig.yaml" in notes[0].where


@pytest.mark.parametrize("missing", [{}, {"apiBaseUrl": None}, {"apiBaseUrl": ""}, {"apiHost": ""}])
def test_a_default_address_stands_where_none_is_given(tmp_path: Path, missing: dict[str, Any]) -> None:
    """With the key's variable of that very service, which a note says."""
    found = imported(tmp_path, chat(**missing))
    assert (found.targets["t"]["base_url"], found.targets["t"]["api_key_env"]) == (OPENAI, "OPENAI_API_KEY")
    (note,) = [note for note in found.notes if note.kind == "key"]
    assert "$OPENAI_API_KEY" in note.what
    assert "api.openai.com" in note.why


@pytest.mark.parametrize("variable", ["INNER_KEY", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"])
def test_a_variable_goes_to_a_host_as_the_source_says_and_is_noted(tmp_path: Path, variable: str) -> None:
    """Whichever it is: the user sees it before the file is used."""
    found = imported(tmp_path, chat(apiBaseUrl="https://inner.example:8443/v1/", apiKeyEnvar=variable))
    assert found.targets["t"]["base_url"] == "https://inner.example:8443/v1"
    assert found.targets["t"]["api_key_env"] == variable
    (note,) = [note for note in found.notes if note.kind == "key"]
    assert f"${variable}" in note.what
    assert "inner.example:8443" in note.why


def test_another_host_gets_no_key_that_the_source_does_not_name(tmp_path: Path) -> None:
    """Neither OpenAI's, nor one whose name is none."""
    found = imported(
        tmp_path,
        {"id": "openai:chat:a", "config": {"apiBaseUrl": "https://inner.example/v1"}},
        {"id": "openai:chat:b", "config": {"apiHost": "inner.example", "apiKeyEnvar": "{{env.NAME}}"}},
        {"id": "openai:chat:c", "config": {"apiHost": "inner.example", "apiKeyEnvar": 5}},
        "ollama:chat:llama",
    )
    assert len(found.targets) == 4
    assert not any("api_key_env" in target for target in found.targets.values())
    assert not [note for note in found.notes if note.kind == "key"]
    assert "OPENAI_API_KEY" in next(note.why for note in found.notes if note.what == "openai:chat:a: its key")


@pytest.mark.parametrize(
    "address",
    [
        "https://user:pass-word@inner.example/v1",
        "https://inner.example/v1?key=pass-word",
        "https://pass-word@inner.example/v1#x",
    ],
)
def test_what_is_secret_in_an_address_is_copied_nowhere(tmp_path: Path, address: str) -> None:
    """Neither into a target, nor into its name, nor into a note."""
    plain = {"method": "POST", "body": {"q": "{{prompt}}"}}
    body = {"url": address, **plain}
    found = imported(
        tmp_path, chat(apiBaseUrl=address), {"id": "https", "config": body}, {"id": address, "config": body},
        {"id": "https", "label": address, "config": {"url": "https://inner.example/ask", **plain}},
    )  # fmt: skip
    write(found, tmp_path / "out", force=False)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert b"pass-word" not in everything
    assert found.targets["t"]["base_url"] == "https://inner.example/v1"
    assert any("not copied" in note.why for note in found.notes)
    assert set(load_targets(tmp_path / "out" / "targets.yaml")) == set(found.targets)


def test_no_template_survives_in_a_target(tmp_path: Path) -> None:
    """Wherever it stands: a model, an option, a header, a body."""
    ask = {"url": "https://inner.example/ask", "method": "POST", "body": {"q": "{{prompt}}"}}
    found = imported(
        tmp_path,
        "openai:chat:{{env.MODEL}}",
        {"id": "openai:{{env.MODEL}}"},
        {"id": "openai:chat:m", "config": {"stop": ["{{env.STOP}}"]}},
        {"id": "https", "label": "url", "config": {**ask, "url": "https://{{env.HOST}}/ask"}},
        {"id": "https", "label": "body", "config": {**ask, "body": {"q": "{{prompt}}", "lang": "{{ env.LANG }}"}}},
        {"id": "https", "label": "key", "config": {**ask, "body": {"q": "{{prompt}}", "{{x}}": 1}}},
        {"id": "https", "label": "fine", "config": ask},
    )
    assert "fine" in found.targets
    written = json.dumps(found.targets)
    assert "{{" not in written
    assert "{%" not in written
    assert "api.openai.com" not in written


def test_a_key_of_a_header_is_named_with_its_host(tmp_path: Path) -> None:
    """As that of a chat is; a header's own text is never copied."""
    config = {"url": "https://inner.example/ask", "method": "POST", "body": {"q": "{{prompt}}"},
              "headers": {"X-Key": "{{env.ASK_KEY}}", "X-Other": "plain-text"}}  # fmt: skip
    found = imported(tmp_path, {"id": "https", "label": "t", "config": config})
    assert (found.targets["t"]["api_key_env"], found.targets["t"]["api_key_header"]) == ("ASK_KEY", "X-Key")
    (note,) = [note for note in found.notes if note.kind == "key"]
    assert "inner.example" in note.why
    assert "X-Key" in note.why
    assert "plain-text" not in json.dumps([found.targets, [str(note) for note in found.notes]])
