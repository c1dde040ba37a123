"""Calls over HTTP: one request, its reply read within bounds, and every way it can fail given its kind."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.records.json_values import MAX_ANSWER_DEPTH, deeper_than
from evalq.workers.targets.answers import Failure, FailureKind
from evalq.workers.targets.body import has_surplus, read_body
from evalq.workers.targets.headers import rate_limits, retry_after
from evalq.workers.targets.off_loop import off_loop

__all__ = ["Reply", "Web"]

_SHOWN = 200
_ERROR_TEXT = 1 << 16
"""The message in an error's body is looked for in one that is no longer."""
_KEEP_SECONDS = 4.0
"""An idle connection is not used again after so long: servers close theirs after five seconds, or later."""
_HEADERS = {"user-agent": "evalq", "content-type": "application/json", "accept-encoding": "identity"}
# A cookie would be sent with the next call: an agent that keeps a conversation by it would answer with what it was
# asked before, and repeats that count as drawn apart would hang together.
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=())
# A spent account answers 429 like a rate limit, but waiting does not help: only these words tell them apart.
_QUOTA_WORDS = ("insufficient_quota", "billing", "quota_exceeded", "exceeded your current quota")
# What services call a limit by the minute, though its message may link to a page named "billing", to raise it there.
_RATE_WORD = "rate_limit_exceeded"
_DOWN = (502, 503, 504)
"""What proxies answer in place of a server that does not."""
_GONE = ("disconnected", "closed connection")
"""What httpx says of a server that left; it has one error for that and for replies that it cannot read."""
_BY_STATUS: dict[int, tuple[FailureKind, str]] = {
    401: ("auth", "the server does not accept the key: see api_key_env"),
    402: ("quota", "the account is spent"),
    403: ("auth", "the key may not do this: see api_key_env"),
    404: ("refused", "not found: see the URL and the model's name"),
    408: ("timeout", "the server gave up waiting"),
    429: ("rate_limit", "asked too often"),
}


class Reply(msgspec.Struct, frozen=True):
    """A reply of status 2xx that is JSON: ``value``, its text, and what its headers say.

    ``asked_bytes`` were sent for it, ``told_bytes`` came.
    """

    value: Any
    text: str
    headers: Mapping[str, str]
    seconds: float
    asked_bytes: int
    told_bytes: int


class Web:
    """A client of one endpoint; until closed it keeps its connections.

    Each call in flight has a client, and so a pool of connections, of its own: a shared pool looks at every connection
    for every call, which with a hundred in flight takes several times as long as all the rest of a call.
    """

    def __init__(self, url: str, headers: Mapping[str, str], max_bytes: int) -> None:
        self._url = url
        given = {name.lower(): value for name, value in headers.items()}
        self._headers = {**_HEADERS, **given}
        self._max_bytes = max_bytes
        self._trust = ssl_context() if url.lower().startswith("https:") else False
        self._local = _is_loopback(urlsplit(url).hostname or "")
        self._idle: list[httpx.AsyncClient] = []
        self._clients: set[httpx.AsyncClient] = set()
        self._unclean: set[httpx.AsyncClient] = set()

    async def close(self) -> None:
        """Let go of all connections."""
        for client in [*self._clients]:
            await client.aclose()

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client that no other call uses: the one used last, whose connection is the likeliest to be alive.

        One whose connection did not end with the whole reply goes: what is left there would answer the next call.
        """
        client, clean = self._idle.pop() if self._idle else self._made(), False
        try:
            yield client
            clean = client not in self._unclean
        finally:
            self._unclean.discard(client)
            if clean:
                self._idle.append(client)
            else:
                self._clients.discard(client)
                await asyncio.shield(client.aclose())

    def _made(self) -> httpx.AsyncClient:
        client = httpx.AsyncClient(
            headers=self._headers,
            cookies=CookieJar(_NO_COOKIES),
            verify=self._trust,
            timeout=None,  # noqa: S113 - the whole call has its limit, in the caller
            limits=httpx.Limits(keepalive_expiry=_KEEP_SECONDS),
            follow_redirects=False,  # it would carry the key elsewhere
            trust_env=not self._local,  # a proxy of the environment is for other machines
        )
        self._clients.add(client)
        return client

    async def post(self, body: Any) -> Reply | Failure:
        """Send ``body`` as JSON; the reply, or what went wrong."""
        began = time.monotonic()
        content = msgspec.json.encode(body)
        try:
            async with self._client() as client, client.stream("POST", self._url, content=content) as response:
                body = await read_body(response, self._max_bytes)
                if body.fault or has_surplus(response):
                    self._unclean.add(client)
        except httpx.TimeoutException:
            return Failure(kind="timeout", reason="no answer in time", down=True)
        except httpx.ConnectError as error:
            return Failure(kind="server", reason=f"cannot connect: {_cause(error)}", down=True)
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Failure(kind="server", reason=_cut(error), down=True)
        except httpx.InvalidURL:
            return Failure(kind="refused", reason="the URL is not one")
        seconds = time.monotonic() - began
        limits, status = rate_limits(response.headers), response.status_code
        text = body.data.decode(errors="replace")
        if not response.is_success:
            wait = retry_after(response.headers)
            kind, reason = _judged(status, text, "" if wait is None else f" (Retry-After: {wait:g} s)")
            return Failure(
                kind=kind, reason=reason, text=text, status=status, retry_after_seconds=wait,
                down=status in _DOWN, latency_seconds=seconds, limits=limits,
            )  # fmt: skip
        fault, value = body.fault, None
        if fault:
            text = text[:_SHOWN]
        else:
            fault, value = await off_loop(len(body.data), _decoded, body.data)
        if fault:
            # What is no JSON at all was not written by the model: a proxy's page, or a body that was cut.
            return Failure(kind="server" if fault == _NO_JSON else "bad_output",
                           reason=_received(response, text) if fault == _NO_JSON else fault,
                           text=text, status=status, latency_seconds=seconds, limits=limits)  # fmt: skip
        return Reply(value, text, response.headers, seconds, len(content), len(body.data))


@cache
def ssl_context() -> ssl.SSLContext:
    """What certificates are held against; made once, since reading the bundle takes a while. Raises ConfigError."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        how = "see SSL_CERT_FILE and SSL_CERT_DIR"
        raise ConfigError(f"certificates cannot be read: {error.strerror or error}; {how}") from None


_NO_JSON = "the reply is not JSON"


def _received(response: httpx.Response, text: str) -> str:
    """What came in place of JSON, and what to look at."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    shown = " ".join(text[:400].split())[:80]
    # The words last: where they are cut within a secret, its first part is looked for at the end.
    what = f"{_NO_JSON} but {kind} (status {response.status_code})"
    return f"{what}: check the address, and proxies on the way; it begins: {shown}"


def _decoded(data: bytes) -> tuple[str, Any]:
    """("", the value of a reply), or (why it has none, None)."""
    try:
        if deeper_than(MAX_ANSWER_DEPTH, data):
            return f"the reply nests deeper than {MAX_ANSWER_DEPTH} levels", None
        return "", msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_JSON, None


def _judged(status: int, text: str, wait: str) -> tuple[FailureKind, str]:
    """What a status other than 2xx means, with the ``wait`` that is asked for and the server's own words."""
    said = _message(text)
    # The words last: where they are cut within a secret, its first part is looked for at the end.
    told = f"{wait}: {said}" if said else wait
    # Before the table, in which a 429 is no more than a rate limit.
    if status == 429 and _spent(text.lower()):
        return "quota", f"HTTP 429: the account's quota is spent{told}"
    if status in _BY_STATUS:
        kind, meaning = _BY_STATUS[status]
        return kind, f"HTTP {status}: {meaning}{told}"
    if status >= 500:
        return "server", f"HTTP {status}: the server failed{told}"
    if 300 <= status < 400:
        return "refused", f"HTTP {status}: the server sends elsewhere; give the final URL"
    return "refused", f"HTTP {status}: the server refuses this request{told}"


def _spent(text: str) -> bool:
    """Whether a 429 is that of an account that is spent, by its body in lower case."""
    return _RATE_WORD not in text and any(word in text for word in _QUOTA_WORDS)


def _message(text: str) -> str:
    """The message in an error's body, in the forms that are common; else how the body begins."""
    try:
        value = msgspec.json.decode(text[:_ERROR_TEXT].encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return " ".join(text[:_SHOWN].split())
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return " ".join(value.split())[:_SHOWN] if isinstance(value, str) else ""


def _cut(error: Exception) -> str:
    """Why no whole reply came. A server of another protocol did answer: its user has to look at the URL."""
    said = str(error)
    if isinstance(error, httpx.ProxyError):
        return f"the proxy that the environment names does not lead there: {said[:_SHOWN]}"
    if isinstance(error, httpx.RemoteProtocolError) and not any(word in said for word in _GONE):
        # At the end: there a part of a key, in what is cut, is looked for.
        return f"what came is not HTTP as it is read here, see the URL: {said[:_SHOWN]}"
    return f"the connection was cut: {type(error).__name__}"


def _cause(error: BaseException) -> str:
    """The system's own words at the root of an error."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
