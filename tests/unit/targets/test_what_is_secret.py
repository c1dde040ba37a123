"""Which headers and parameters hold secrets, and that nothing else is cut out of answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.ledger.sweep_model import differing_settings
from evalq.workers.targets import Answered, Call, Caller
from evalq.workers.targets.config import load_targets
from evalq.workers.targets.http import is_secret, secrets_of
from evalq.workers.targets.target import shown_settings
from tests.agents.server import running_agent

HARMLESS = {
    "accept": "application/json",
    "content-type": "application/json; charset=utf-8",
    "anthropic-version": "2023-06-01",
    "openai-beta": "assistants=v2",
    "user-agent": "evaluation/1.0",
    "x-request-source": "nightly",
    "x-model": "gpt-4o-2024-08-06",
    "x-skills": "skills-and-keys",
    "monkey": "bananas",
    "x-author": "somebody",
}
SECRET = {
    "Authorization": "Bearer abc-def-ghi",
    "Proxy-Authorization": "Basic dXNlcjpwYXNz",
    "X-Api-Key": "0123456789",
    "api-key": "abcdefghij",
    "apikey": "abcdefghijk",
    "Ocp-Apim-Subscription-Key": "subscribed",
    "X-Auth-Token": "tokentoken",
    "Private-Token": "privatepriv",
    "Cookie": "session=cookie-value; theme=darkest-one",
    "X-Amz-Security-Token": "amazonian",
    "X-Client-Secret": "clientelle",
    "X-Signature": "signedsigned",
    "X-Team": "sk-by-its-value",
}


def answer_to(folder: Path, text: str, **entry: Any) -> Answered:
    """What becomes of an answer that holds ``text``."""
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: text
        whole = {"kind": "openai", "base_url": url, "model": "m", "output": "text", **entry}
        (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": whole}}))

        async def go() -> Any:
            async with Caller(load_targets(folder / "targets.yaml")["t"]) as caller:
                return await caller.call(Call("x"))

        result = asyncio.run(go())
    assert isinstance(result, Answered), result
    return result


def test_a_harmless_header_stays_in_answers(tmp_path: Path) -> None:
    """An answer that names a media type or a version is as it came, and nothing is said to be cut."""
    text = " ".join(HARMLESS.values())
    answer = answer_to(
        tmp_path, text, headers={name: value for name, value in HARMLESS.items() if "content" not in name}
    )
    assert (answer.text, answer.cut, answer.note) == (text, 0, "")


def test_a_secret_header_is_cut_out_and_said(tmp_path: Path) -> None:
    """Whole, without its scheme, and a cookie's parts each; the note says how many."""
    text = "one abc-def-ghi two cookie-value three darkest-one four sk-by-its-value five 0123456789"
    answer = answer_to(tmp_path, text, headers=SECRET)
    assert answer.text == "one *** two *** three *** four *** five ***"
    assert answer.cut == 5
    assert answer.note == "5 secrets of this machine cut out of the reply (***)"


def test_a_secret_in_the_name_of_a_model_is_cut_out(tmp_path: Path) -> None:
    """And where a reply says why it ended: both are kept with each attempt, and shown in reports."""
    secret = "sk-" + 100 * "s"
    with running_agent() as (agent, url):
        for model, shown in ((f"m {secret}", "m ***"), (150 * "m" + secret, 150 * "m" + "***")):
            choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": f"by {secret}"}
            agent.reply = lambda path, data, choice=choice, model=model: {"choices": [choice], "model": model}
            entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", "headers": {"api-key": secret}}
            (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))

            async def go() -> Any:
                async with Caller(load_targets(tmp_path / "targets.yaml")["t"]) as caller:
                    return await caller.call(Call("x"))

            result = asyncio.run(go())
            assert isinstance(result, Answered), result
            assert (result.served.model, result.finish_reason) == (shown, "by ***")
            assert secret[:8] not in repr(result)
            assert result.cut >= 1


@pytest.mark.parametrize(("name", "value"), [*HARMLESS.items(), *SECRET.items()])
def test_what_is_secret_goes_by_the_headers_name(name: str, value: str) -> None:
    """Or by a value that says itself that it is a key."""
    assert (value in set(secrets_of("https://host/", {name: value}))) == (name in SECRET)


def test_of_an_address_its_version_is_no_secret() -> None:
    """Its password is, and what is named as keys are."""
    url = (
        "https://me:password1@host/v1?api-version=2024-02-01&key=abcdef1&code=ghijkl2&deployment=production&sig=mnopqr3"
    )
    found = set(secrets_of(url, {}))
    assert {"password1", "abcdef1", "ghijkl2", "mnopqr3"} <= found
    assert not {"2024-02-01", "production", "me"} & found
    harmless = ("max-tokens", "keyboard", "author", "x-authority", "encoding", "passenger-count")
    assert not any(map(is_secret, harmless))


def test_shown_settings_have_no_key_and_no_prompt(tmp_path: Path) -> None:
    """Numbers and names of models as they are; texts, lists and what may be a key as digests; no address at all."""
    entry = {
        "kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m-1", "api_key_env": "SOME_KEY",
        "headers": {"X-Secret": "s3cr3t"}, "system_prompt": "s.md",
        "options": {"temperature": 0.2, "max_tokens": 9, "api_key": 1234, "token": "t0ken", "user": "somebody"},
    }  # fmt: skip
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"chat": entry}}))
    (tmp_path / "s.md").write_text("Be kind.")
    named = load_targets(tmp_path / "targets.yaml")["chat"]
    shown = shown_settings(named)
    assert (shown["kind"], shown["model"], shown["options.temperature"]) == ('"openai"', '"m-1"', "0.2")
    assert shown["options.max_tokens"] == "9"
    said = json.dumps(shown)
    for hidden in ("127.0.0.1", "SOME_KEY", "s3cr3t", "kind.", "1234", "t0ken", "somebody"):
        assert hidden not in said
    assert {shown[f"options.{name}"][:7] for name in ("api_key", "token", "user")} == {"digest "}
    changed = {**shown, "options.temperature": "1", "options.seed": "3"}
    assert differing_settings(shown, changed) == (
        "options.seed: not set then, 3 now; options.temperature: 0.2 then, 1 now"
    )
    assert differing_settings({}, shown) == differing_settings(shown, {}) == differing_settings(shown, shown) == ""
