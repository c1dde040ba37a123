"""What HTTP makes of a call: each by itself, the right kind of failure, and no secret in any form of writing."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.targets import Answered, Call, Caller, Failure, load_targets
from evalq.workers.targets.http import secrets_of, shown
from tests.agents.server import Agent, running_agent


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[Agent, str]]:
    """A server that obeys."""
    with running_agent() as started:
        yield started


def _ask(folder: Path, url: str, *orders: dict[str, Any], key: str = "", **more: Any) -> list[Answered | Failure]:
    """Results of orders, one after the other."""
    entry = {"kind": "openai", "base_url": url, "model": "m", "output": "text", **more}
    if key:
        entry["api_key_env"] = "KEY"
    (folder / "targets.yaml").write_text(json.dumps({"targets": {"t": entry}}))
    named = load_targets(folder / "targets.yaml")["t"]

    async def all_of() -> list[Answered | Failure]:
        async with Caller(named, {"KEY": key}) as caller:
            return [await caller.call(Call(json.dumps(order))) for order in orders]

    return asyncio.run(all_of())


def test_no_call_takes_a_cookie_to_the_next(service: tuple[Agent, str], tmp_path: Path) -> None:
    """Answers of one conversation would count as drawn apart; a cookie of the file's own headers is sent with each."""
    agent, url = service
    order = {"do": "raw", "body": "{}", "headers": {"set-cookie": "session=1; Path=/"}}
    for given, sent in (({}, None), ({"Cookie": "mine=2"}, "mine=2")):
        _ask(tmp_path, url, order, order, headers=given)
        assert [request["headers"].get("cookie") for request in agent.requests[-2:]] == [sent, sent]


def test_what_a_proxy_says_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to connect, and its user has to know of it: no connection was cut."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)

    def refuse(proxy: socket.socket) -> None:
        with proxy.accept()[0] as line:
            line.recv(1 << 16)
            line.sendall(b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        refusing = threading.Thread(target=refuse, args=(proxy,), daemon=True)
        refusing.start()
        (result,) = _ask(tmp_path, "https://nowhere.example/v1", {}, timeout_seconds=20)
        refusing.join()
    assert isinstance(result, Failure)
    message = "the proxy that the environment names does not lead there: 407 Who are you"
    assert (result.kind, result.down, result.reason) == ("server", True, message)


# As a service words it: the page is where its customers raise the limit.
_PACED = {
    "message": "Rate limit reached for model m: Limit 3, Used 3. Please try again in 20s. Need more? Visit "
    "https://console.example/settings/billing",
    "type": "tokens",
    "code": "rate_limit_exceeded",
}


def test_a_link_to_a_bill_spends_no_account(service: tuple[Agent, str], tmp_path: Path) -> None:
    """A rate limit is waited for; a spent account would end the whole sweep."""
    (result,) = _ask(tmp_path, service[1], {"do": "raw", "status": 429, "body": json.dumps({"error": _PACED})})
    assert isinstance(result, Failure)
    assert result.kind == "rate_limit"
    assert result.reason.startswith("HTTP 429: asked too often: Rate limit reached")


@pytest.mark.parametrize("before", [178, 184, 191])
def test_no_part_of_a_key_is_reported_where_a_wait_is_asked_for(
    service: tuple[Agent, str], tmp_path: Path, before: int
) -> None:
    """The message is cut within the key, and the wait stands behind neither."""
    key, headers = "sk-never-to-be-seen", {"retry-after": "7"}
    order = {"do": "raw", "status": 500, "body": before * "y" + " " + key, "headers": headers}
    (result,) = _ask(tmp_path, service[1], order, key=key)
    assert isinstance(result, Failure)
    assert result.reason.startswith("HTTP 500: the server failed (Retry-After: 7 s): yyy")
    assert key[:6] not in result.reason + result.text


def test_no_secret_comes_back_in_other_letters(service: tuple[Agent, str], tmp_path: Path) -> None:
    """As JSON and URLs escape it, in an error's body and within an answer's JSON."""
    key, escaped = 'sk-never/to"be seen', 'sk-never\\/to\\"be seen'
    bodies = {500: '{"error": "no such key: ' + escaped + '"}', 400: "/v1?key=sk-never%2Fto%22be%20seen"}
    orders = [{"do": "raw", "status": status, "body": body} for status, body in bodies.items()]
    answer, *failures = _ask(
        tmp_path, service[1], {"do": "say", "content": f'{{"k": "{escaped}"}}'}, *orders, key=key, output="json"
    )
    assert isinstance(answer, Answered)
    assert (answer.text, answer.output) == ('{"k": "***"}', {"k": "***"})
    for failure in failures:
        assert isinstance(failure, Failure)
        assert "never" not in failure.reason + failure.text, failure
        assert "***" in failure.text


def test_no_secret_comes_back_as_servers_of_go_or_net_escape_it(service: tuple[Agent, str], tmp_path: Path) -> None:
    """By number in JSON, and in URLs by small letters."""
    written = {501: '{"error": "sk\\u002B\\u0026never\\u003C/"}', 502: '{"error": "sk+\\u0026never\\u003c/"}'}
    written |= {400: "/v1?key=sk%2b%26never%3c%2f"}
    orders = [{"do": "raw", "status": status, "body": body} for status, body in written.items()]
    for failure in _ask(tmp_path, service[1], *orders, key="sk+&never</"):
        assert isinstance(failure, Failure)
        assert "never" not in failure.reason + failure.text, failure


def test_no_secret_comes_back_as_gson_escapes_it(service: tuple[Agent, str], tmp_path: Path) -> None:
    """The padding of Base64, at which many keys end: all before it would stand there."""
    order = {"do": "raw", "status": 500, "body": '{"error": "no such key: c2stbmV2ZXI\\u003d"}'}
    (failure,) = _ask(tmp_path, service[1], order, key="c2stbmV2ZXI=")
    assert isinstance(failure, Failure)
    assert "c2stbmV2" not in failure.reason + failure.text


def test_what_a_url_has_beside_its_path_does_not_come_back() -> None:
    """Neither as it stands in the file, nor as it is sent, nor as whoever gets it reads it."""
    secrets = secrets_of("https://me:pass%2Fword@host/v1?key=a%2Bb%2Fcdef", {})
    sent = base64.b64encode(b"me:pass/word").decode()
    assert {"pass%2Fword", "pass/word", sent, "a%2Bb%2Fcdef", "a+b/cdef"} <= set(secrets)
    assert {"sk_live_1", base64.b64encode(b"sk_live_1:").decode()} <= set(secrets_of("https://sk_live_1@host/", {}))
    assert "somebody" not in secrets_of("https://somebody:password@host/", {})


def test_an_address_is_shown_as_it_can_be_written() -> None:
    """Of numbers and colons in brackets, with nothing that may be secret."""
    assert shown("http://me:word@[::1]:8000/v1?key=x") == "http://[::1]:8000/v1"
    assert shown("https://host/v1") == "https://host/v1"
