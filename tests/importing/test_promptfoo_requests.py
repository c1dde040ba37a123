"""An imported target sends what promptfoo sends, or is listed with the name of what it would send otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest
from evalq.workers.targets.answers import Call
from evalq.workers.targets.http import fill

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{q}}"}]
TEXT = "Say {{q}}"
SHARED: dict[str, Any] = {"lang": "French", "n": 5, "list": "[1]", "user": {"name": "Kim"}, "ours": "{agent}"}
"""Variables that every test has alike."""
JSON = {"Content-Type": "application/json"}


def _imported(folder: Path, provider: Any, *prompts: Any, asked: tuple[str, ...] = ("hi", "ho")) -> Imported:
    lines = [each if isinstance(each, str) else json.dumps(each) for each in prompts]
    config = {
        "prompts": lines,
        "providers": [provider],
        "tests": [{"vars": dict(SHARED, q=q, own=q), "assert": [{"type": "contains", "value": "x"}]} for q in asked],
    }
    (folder / "promptfooconfig.json").write_text(json.dumps(config))
    return sources.read("promptfoo", folder / "promptfooconfig.json", ImportRequest())


def _http(body: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "https",
        "label": "t",
        "config": {"url": "https://inner.example/ask", "method": "POST", "body": body, **more},
    }


@pytest.mark.parametrize(
    ("prompt", "body", "sent"),
    [
        (TEXT, {"q": "{{prompt}}"}, {"q": "Say hi"}),
        (TEXT, {"q": "{{prompt}}", "lang": "{{lang}}", "n": "{{ n }}"}, {"q": "Say hi", "lang": "French", "n": "5"}),
        (TEXT, {"q": "{{prompt}} in {{ lang }}, {{user.name}}"}, {"q": "Say hi in French, Kim"}),
        (
            TEXT,
            {"q": "{{prompt}}", "list": "{{list}}", "dumped": "{{user | dump}}"},
            {"q": "Say hi", "list": [1], "dumped": {"name": "Kim"}},
        ),
        ("{{q}}", {"question": "{{q}}", "text": "Q: {{q}}"}, {"question": "hi", "text": "Q: hi"}),
        ("42", {"q": "{{prompt}}"}, {"q": "42"}),
        (TEXT, '{"q": "{{prompt}}", "n": 1}', {"q": "Say hi", "n": 1}),
        (TEXT, '{"q": {{prompt | dump}}, "n": {{n}}, "lang": "{{lang}}"}', {"q": "Say hi", "n": 5, "lang": "French"}),
        (
            CHAT,
            '{"messages": {{prompt}}, "n": {{n}}}',
            {"messages": [CHAT[0], {"role": "user", "content": "hi"}], "n": 5},
        ),
        (TEXT, {"q": "Please: {{prompt}}"}, {"q": "Please: Say hi"}),
        (CHAT, {"messages": "{{prompt}}"}, {"messages": [CHAT[0], {"role": "user", "content": "hi"}]}),
        (TEXT, {"q": " {{prompt}} "}, {"q": " Say hi "}),
        (CHAT, [{"a": {"b": " {{ prompt }} "}}], [{"a": {"b": [CHAT[0], {"role": "user", "content": "hi"}]}}]),
    ],
)
def test_a_body_is_sent_as_promptfoo_fills_it(prompt: Any, body: Any, sent: Any, tmp_path: Path) -> None:
    """A text stays one, a chat a list of messages, and a variable that is the same in every case is its text."""
    found = _imported(tmp_path, _http(body, headers={"Content-Type": "application/json"}), prompt)
    case = found.cases[0]
    given = case["input"]
    call = Call(prompt=given) if isinstance(given, str) else Call(prompt=json.dumps(given), messages=tuple(given))
    assert fill(found.targets["t"]["body"], call.fillings()) == sent


@pytest.mark.parametrize(
    ("body", "more", "said"),
    [
        ({"q": "{{prompt}}", "own": "{{own}}"}, {}, "{{own}}"),
        ({"q": "{{prompt}} in {{ own }}"}, {}, "{{ own }}"),
        ({"q": "{{prompt}}", "x": "{{sessionId}}"}, {}, "{{sessionId}}"),
        ({"q": "{{ prompt | dump }}"}, {}, "{{ prompt | dump }}"),
        ({"q": "{{prompt}}", "as": "{{ours}}"}, {}, "{agent}"),
        ({"q": "{{prompt}}", "user": "{{user}}"}, {}, "a mapping where a text is wanted"),
        ({"q": "{{prompt}}"}, {"method": "PUT"}, "another method"),
        ({"q": "{{prompt}}"}, {"method": None}, "by GET"),
        ("q={{prompt}}", {}, "no Content-Type"),
        ('{"q": {{prompt}}}', {"headers": JSON}, "outside of quotes"),
        ('{"q": "{{prompt}}", "n": {{own}}}', {"headers": JSON}, "{{own}}"),
        ('{"q": {{prompt | dump}}', {"headers": JSON}, "no JSON with its variables filled in"),
        ({"q": "{{prompt}}", "as": "{agent}"}, {}, "{agent}"),
        ({"q": "{{prompt}}"}, {"headers": {"Authorization": "{{env.KEY}}"}}, "without Bearer"),
        ({"q": "{{prompt}}"}, {"headers": {"X-Key": "Bearer {{env.KEY}}"}}, "with Bearer"),
        ({"q": "{{prompt}}"}, {"queryParams": {"a": "1"}}, "queryParams"),
        ({"q": "{{prompt}}"}, {"transformRequest": '{"x": "{{prompt}}"}'}, "transformRequest"),
        ({"q": "{{prompt}}"}, {"auth": {"type": "basic"}}, "auth"),
    ],
)
def test_a_request_that_would_be_another_one_is_no_target(
    body: Any, more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """The note names what it would be."""
    found = _imported(tmp_path, _http(body, **more), TEXT)
    assert found.targets == {}
    assert any(said in note.why for note in found.notes if note.what == "https"), found.notes


@pytest.mark.parametrize("prompts", [(TEXT, CHAT), ('{"a": "{{q}}"}',)], ids=str)
def test_prompts_of_several_kinds_are_for_no_one_body(prompts: tuple[Any, ...], tmp_path: Path) -> None:
    """promptfoo sends a prompt that is a list or an object as data, and another one as a text."""
    found = _imported(tmp_path, _http({"q": "{{prompt}}"}), *prompts)
    assert found.targets == {}
    # Within other text it indents them.
    found = _imported(tmp_path, _http({"q": "Please: {{prompt}}"}), *prompts)
    assert found.targets == {}
    assert any("indents" in note.why for note in found.notes)


def test_a_body_of_text_is_refused_where_json_would_escape_its_prompt(tmp_path: Path) -> None:
    """promptfoo writes it as it is and reads JSON then: a backslash would be another sign."""
    body = '{"q": "{{prompt}}", "n": {{n}}}'
    assert _imported(tmp_path, _http(body, headers=JSON), TEXT).targets
    found = _imported(tmp_path, _http(body, headers=JSON), TEXT, asked=("hi", "a\\b"))
    assert found.targets == {}
    assert any("JSON escapes" in note.why for note in found.notes)


@pytest.mark.parametrize("header", ["Authorization", "authorization"])
def test_a_key_with_bearer_is_sent_with_it(header: str, tmp_path: Path) -> None:
    """As evalq sends a key in that header; in another one it stands alone."""
    found = _imported(tmp_path, _http({"q": "{{prompt}}"}, headers={header: "Bearer {{env.KEY}}"}), TEXT)
    assert found.targets["t"]["api_key_env"] == "KEY"
    assert "api_key_header" not in found.targets["t"]
    found = _imported(tmp_path, _http({"q": "{{prompt}}"}, headers={"X-Key": "{{env.KEY}}"}), TEXT)
    assert found.targets["t"]["api_key_header"] == "X-Key"


@pytest.mark.parametrize(
    ("provider", "model", "address", "variable"),
    [
        ("openrouter:meta/llama-3:free", "meta/llama-3:free", "openrouter.ai/api/v1", "OPENROUTER"),
        ("groq:llama-3.1-8b", "llama-3.1-8b", "api.groq.com/openai/v1", "GROQ"),
        ("deepseek:deepseek-chat", "deepseek-chat", "api.deepseek.com/v1", "DEEPSEEK"),
        ("mistral:mistral-large-latest", "mistral-large-latest", "api.mistral.ai/v1", "MISTRAL"),
        ("perplexity:sonar", "sonar", "api.perplexity.ai", "PERPLEXITY"),
        ("cerebras:llama3.1-8b", "llama3.1-8b", "api.cerebras.ai/v1", "CEREBRAS"),
        ("togetherai:chat:a/b", "a/b", "api.together.xyz/v1", "TOGETHER"),
        ("xai:grok-3", "grok-3", "api.x.ai/v1", "XAI"),
    ],
)
def test_services_of_chat_completions_are_targets_of_kind_openai(
    provider: str, model: str, address: str, variable: str, tmp_path: Path
) -> None:
    """With their own address and their own variable, which a note names; another address gets no key."""
    # promptfoo's defaults, which it sends where the configuration says nothing.
    other = {"top_p": 1, "random_seed": None} if provider.startswith("mistral") else {"temperature": 0}
    ((_, target),) = _imported(tmp_path, provider, TEXT).targets.items()
    assert target == {
        "kind": "openai",
        "base_url": f"https://{address}",
        "model": model,
        "api_key_env": f"{variable}_API_KEY",
        "options": {"max_tokens": 1024, **other},
        "output": "text",
    }
    config = {"apiBaseUrl": "https://inner.example/v1", "temperature": 0.5}
    ((_, target),) = _imported(tmp_path, {"id": provider, "config": config}, TEXT).targets.items()
    assert target == {
        "kind": "openai",
        "base_url": "https://inner.example/v1",
        "model": model,
        "options": {"max_tokens": 1024, **other, "temperature": 0.5},
        "output": "text",
    }


@pytest.mark.parametrize(
    ("provider", "config", "options"),
    [
        ("openai:chat:gpt-5-mini", {"temperature": 0.5, "max_tokens": 9, "max_completion_tokens": 7},
         {"max_completion_tokens": 7}),
        ("openrouter:openai/o3", {"reasoning_effort": "low", "seed": 1}, {"reasoning_effort": "low", "seed": 1}),
        ("openai:chat:small", {"reasoning_effort": "low", "tools": [{"type": "function"}]},
         {"max_tokens": 1024, "temperature": 0, "tools": [{"type": "function"}]}),
        ("openai:chat:small", {"omitDefaults": True, "top_p": 0.5}, {"top_p": 0.5}),
        ("openai:chat:small", {"tools": "file://tools.json"}, {"max_tokens": 1024, "temperature": 0}),
    ],
)  # fmt: skip
def test_members_of_the_request_are_those_that_promptfoo_sends(
    provider: str, config: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    """Models that think first are sent no temperature; what names a file is listed."""
    found = _imported(tmp_path, {"id": provider, "config": config}, TEXT)
    ((_, target),) = found.targets.items()
    assert target["options"] == options
    assert ("tools" in str(config) and "tools" not in options) == any("tools" in note.what for note in found.notes)


@pytest.mark.parametrize(
    "provider", ["mistral:embedding:mistral-embed", "groq:responses:x", "acme:chat:x", "groq:", "xai:image:x"]
)
def test_other_interfaces_and_services_are_listed(provider: str, tmp_path: Path) -> None:
    """None of them becomes a chat at somebody's address."""
    found = _imported(tmp_path, provider, TEXT)
    assert found.targets == {}
    assert provider in {note.what for note in found.notes}


@pytest.mark.parametrize(
    ("name", "config", "wanted"),
    [
        (
            "anthropic:messages:claude-sonnet-4-5",
            {"temperature": 0.5},
            {"kind": "anthropic", "max_tokens": 1024, "options": {"temperature": 0.5}, "api_version": "2023-06-01",
             "base_url": "https://api.anthropic.com", "api_key_env": "ANTHROPIC_API_KEY"},
        ),
        ("anthropic:claude-opus-4-8", {"temperature": 0.5}, {"kind": "anthropic", "max_tokens": 1024}),
        ("anthropic:claude-sonnet-5", {}, {"kind": "anthropic", "max_tokens": 2048}),
        (
            "openai:responses:gpt-4o",
            {"max_output_tokens": 7},
            {"kind": "responses", "base_url": "https://api.openai.com/v1", "api_key_env": "OPENAI_API_KEY",
             "options": {"max_output_tokens": 7, "temperature": 0, "text": {"format": {"type": "text"}}}},
        ),
        (
            "google:gemini-2.5-pro",
            {"temperature": 0.1},
            {"kind": "gemini", "options": {"temperature": 0.1}, "api_version": "v1beta",
             "api_key_env": "GEMINI_API_KEY"},
        ),
    ],
)  # fmt: skip
def test_models_of_other_apis_become_targets(
    name: str, config: dict[str, Any], wanted: dict[str, Any], tmp_path: Path
) -> None:
    """`make peers` compares their requests with promptfoo's own."""
    (target,) = _imported(tmp_path, {"id": name, "config": config}, TEXT).targets.values()
    assert {key: target.get(key) for key in wanted} == wanted
    assert "options" in wanted or "options" not in target


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("anthropic:messages:claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking"),
        ("anthropic:messages:claude-sonnet-4-5", {"tools": [{"name": "t"}]}, "rewrites the tools"),
        ("anthropic:completion:claude-2", {}, "no kind of target"),
        ("anthropic:messages", {}, "no kind of target"),
        ("google:gemini-2.5-flash", {"temperature": 0}, "some Flash models"),
        ("google:gemini-2.5-pro", {"tools": [{}]}, "rewrites tools"),
        ("google:palm", {}, "no kind of target"),
        ("openai:responses", {}, "no kind of target"),
    ],
)
def test_what_promptfoo_changes_by_its_own_tables_is_listed(
    name: str, config: dict[str, Any], said: str, tmp_path: Path
) -> None:
    imported = _imported(tmp_path, {"id": name, "config": config}, TEXT)
    assert not imported.targets
    assert any(said in note.why for note in imported.notes)
