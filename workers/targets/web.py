"""Calls over HTTP: send a request, read its reply within limits, and give each failure its kind."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.workers.targets.answers import Failure, FailureKind, Quota, RateLimits, begin_of, off_loop
from evalq.workers.targets.bodies import (
    AWS_STREAM,
    EVENT_STREAM,
    NO_JSON,
    ReplyBody,
    StreamBody,
    decoded,
    has_surplus,
    media_type,
    read_body,
    read_stream,
)
from evalq.workers.targets.events import CONTENT_FILTER, Joined, error_of

# -- limits from headers: Retry-After in both forms, and the x-ratelimit family -------------------------

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_EPOCH = 1e9
"""A reset beyond this many seconds is a point in time, not a wait."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from ``retry-after-ms`` or ``retry-after`` (seconds, or a date compared with the server's own
    Date); None without a usable value. ``headers`` has lower-case names or ignores case.
    """
    # Prefer the finer unit if a server sends both.
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    until = _date(value)
    return None if until is None else max(0.0, (until - _now(headers)).total_seconds())


def rate_limits(headers: Mapping[str, str]) -> RateLimits:
    """``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, without a last part for requests; Anthropic's have
    the part last.
    """
    return RateLimits(_quota(headers, "requests"), _quota(headers, "tokens"))


def _quota(headers: Mapping[str, str], what: str) -> Quota:
    def header(part: str) -> str | None:
        names = [f"x-ratelimit-{part}-{what}", f"anthropic-ratelimit-{what}-{part}"]
        names += [f"x-ratelimit-{part}"] * (what == "requests")
        return next((value for name in names if (value := headers.get(name)) is not None), None)

    limit, remaining = _number(header("limit")), _number(header("remaining"))
    return Quota(
        None if limit is None else int(limit),
        None if remaining is None else int(remaining),
        _seconds(header("reset"), headers),
    )


def _seconds(text: str | None, headers: Mapping[str, str]) -> float | None:
    """A reset as "1m30.5s", as seconds, or as a point in time (seconds since 1970, or as RFC 3339 writes it)."""
    if text is None:
        return None
    number = _number(text)
    if number is not None:
        return number if number < _EPOCH else max(0.0, number - _now(headers).timestamp())
    if (until := _iso_date(text)) is not None:
        return max(0.0, (until - _now(headers)).total_seconds())
    parts = _DURATION.findall(text)
    # The whole text must match: "1m30x" may mean anything.
    if not parts or "".join(amount + unit for amount, unit in parts) != text.strip():
        return None
    return float(sum(float(amount) * _UNITS[unit] for amount, unit in parts))


def _number(text: str | None) -> float | None:
    """A finite, non-negative number; None for any other text."""
    # float() would also accept signs, "nan", "inf" and digits of other scripts.
    return float(text) if text is not None and re.fullmatch(r"\s*\d{1,15}(\.\d{1,9})?\s*", text, re.ASCII) else None


def _date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _iso_date(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.strip()) if "T" in text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _now(headers: Mapping[str, str]) -> datetime:
    """The server's time from its Date header, else this machine's, whose clock may be wrong."""
    return _date(headers.get("date")) or datetime.now(UTC)


_SHOWN = 200
_ERROR_TEXT = 1 << 16
"""The most characters of an error's body in which evalq looks for a message."""
_KEEP_SECONDS = 4.0
"""How long an idle connection is used again; servers close theirs after five seconds or later."""
_HEADERS = {"user-agent": "evalq", "content-type": "application/json", "accept-encoding": "identity"}
# No cookies: an agent could keep a conversation by them. Answers would depend on earlier calls, and repeats must be
# independent.
_NO_COOKIES = DefaultCookiePolicy(allowed_domains=())
# An account without credit answers 429 like a rate limit, but waiting does not help. Only these words show it.
_QUOTA_WORDS = ("insufficient_quota", "billing", "quota_exceeded", "exceeded your current quota",
                "spend_limit_reached")  # fmt: skip
# The code of a limit per minute, whose message may link to a page named "billing".
_RATE_WORD = "rate_limit_exceeded"
_DOWN = (502, 503, 504)
"""Statuses of proxies whose server does not answer."""
_GONE = ("disconnected", "closed connection")
"""Words in httpx's error for a closed connection; it uses the same error class for malformed replies."""
_BY_STATUS: dict[int, tuple[FailureKind, str]] = {
    401: ("auth", "the server does not accept the key: see api_key_env"),
    402: ("quota", "the account is spent"),
    403: ("auth", "the key may not do this: see api_key_env"),
    404: ("refused", "not found: see the URL and the model's name"),
    408: ("timeout", "the server gave up waiting"),
    424: ("server", "the model failed"),
    429: ("rate_limit", "asked too often"),
    529: ("rate_limit", "the provider is overloaded"),
}


class Reply(msgspec.Struct, frozen=True):
    """A reply with a status 2xx and JSON: its ``value``, its text, and the ``limits`` from its headers.

    ``asked_bytes`` and ``reply_bytes`` are the sizes of the request and the reply. ``first_token_seconds`` of a stream
    is the time until the model began to write.
    """

    value: Any
    text: str
    limits: RateLimits
    seconds: float
    asked_bytes: int
    reply_bytes: int
    first_token_seconds: float | None = None


Sign = Callable[[str, bytes], Awaitable[Mapping[str, str]]]
"""Gives the headers that one request needs, by its URL and body. Raises ConfigError without credentials."""


class Web:
    """A client of one endpoint, which keeps its connections open until `close`.

    Each call in flight has its own httpx client, and so its own connection pool. A shared pool checks every connection
    for every call, which with a hundred calls takes several times as long as the rest of a call.
    """

    def __init__(self, url: str, headers: Mapping[str, str], max_bytes: int, sign: Sign | None = None) -> None:
        self._url = url
        self._sign = sign
        given = {name.lower(): value for name, value in headers.items()}
        self._headers = {**_HEADERS, **given}
        self._max_bytes = max_bytes
        self._trust = _ssl_context() if url.lower().startswith("https:") else _no_trust()
        self._local = _is_loopback(urlsplit(url).hostname or "")
        self._idle: list[httpx.AsyncClient] = []
        self._clients: set[httpx.AsyncClient] = set()
        self._unclean: set[httpx.AsyncClient] = set()

    async def close(self) -> None:
        """Close all connections."""
        for client in [*self._clients]:
            await client.aclose()

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for one call: the one used last, whose connection is most likely still open.

        It is dropped if the call did not read exactly its reply: the rest would answer the next call.
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
            timeout=None,  # noqa: S113 - the caller limits the whole call
            limits=httpx.Limits(keepalive_expiry=_KEEP_SECONDS),
            follow_redirects=False,  # a redirect would send the key to another host
            trust_env=not self._local,  # the environment's proxies are for other machines
        )
        self._clients.add(client)
        return client

    async def post(
        self, body: Any, headers: Mapping[str, str] | None = None, joined: Joined | None = None
    ) -> Reply | Failure:
        """Send ``body`` as JSON, with ``headers`` beside the target's own. Returns the reply, or the failure.

        ``joined`` makes one reply of a stream of events.
        """
        began = time.monotonic()
        content = msgspec.json.encode(body)
        read, stream = ReplyBody(b""), None
        try:
            signed = {} if self._sign is None else await self._sign(self._url, content)
            async with (
                self._client() as client,
                client.stream("POST", self._url, content=content, headers={**(headers or {}), **signed}) as response,
            ):
                if joined is not None and response.is_success and _is_stream(response):
                    stream = await read_stream(response, self._max_bytes, joined, began)
                else:
                    read = await read_body(response, self._max_bytes)
                if read.fault or (stream is not None and not stream.whole) or has_surplus(response):
                    self._unclean.add(client)
        except ConfigError as error:
            return Failure(kind="auth", reason=str(error), connected=False)
        except httpx.TimeoutException:
            return Failure(kind="timeout", reason="no answer in time", down=True)
        except httpx.ConnectError as error:
            return Failure(kind="server", reason=f"cannot connect: {_cause(error)}", down=True, connected=False)
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Failure(kind="server", reason=_cut(error), down=True)
        except httpx.InvalidURL:
            return Failure(kind="refused", reason="the URL is not one")
        seconds = time.monotonic() - began
        limits = rate_limits(response.headers)
        if stream is not None:
            return _streamed(stream, len(content), limits, response.status_code)
        return await _replied(response, read, len(content), seconds, limits)


def _is_stream(response: httpx.Response) -> bool:
    return media_type(response) in (EVENT_STREAM, AWS_STREAM)


def _streamed(stream: StreamBody, asked: int, limits: RateLimits, status: int) -> Reply | Failure:
    """The reply in the events of a stream, or why there is none."""
    if stream.failed is not None:
        failed = stream.failed
        return Failure(
            kind=failed.kind, reason=failed.reason, text=stream.begin[:_SHOWN], status=status,
            finish_reason=failed.finish, first_token_seconds=stream.first_seconds, latency_seconds=stream.seconds,
            limits=limits,
        )  # fmt: skip
    return Reply(stream.value, stream.text, limits, stream.seconds, asked, stream.size, stream.first_seconds)


async def _replied(
    response: httpx.Response, body: ReplyBody, asked: int, seconds: float, limits: RateLimits
) -> Reply | Failure:
    status, text = response.status_code, body.data.decode(errors="replace")
    if not response.is_success:
        wait = retry_after(response.headers)
        if wait is None and status == 429:
            wait = _wait_in(text)
        kind, reason = _judged(status, text, "" if wait is None else f" (Retry-After: {wait:g} s)")
        return Failure(
            kind=kind, reason=reason, text=text, status=status, retry_after_seconds=wait, down=status in _DOWN,
            finish_reason=CONTENT_FILTER if _FILTERED in reason else None, latency_seconds=seconds, limits=limits,
        )  # fmt: skip
    fault, value = body.fault, None
    if fault:
        text = text[:_SHOWN]
    else:
        fault, value = await off_loop(len(body.data), decoded, body.data)
    if fault:
        # A body that is not JSON does not come from the model: it is a proxy's page, or was cut off.
        return Failure(kind="server" if fault == NO_JSON else "bad_output",
                       reason=_received(response, text) if fault == NO_JSON else fault,
                       text=text, status=status, latency_seconds=seconds, limits=limits)  # fmt: skip
    return Reply(value, text, limits, seconds, asked, len(body.data))


@cache
def _ssl_context() -> ssl.SSLContext:
    """The TLS context, made once, because reading the certificates takes a while. Raises ConfigError."""
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        how = "see SSL_CERT_FILE and SSL_CERT_DIR"
        raise ConfigError(f"certificates cannot be read: {error.strerror or error}; {how}") from None


@cache
def _no_trust() -> ssl.SSLContext:
    """A TLS context for plain HTTP, made once; httpx would make one for each client, which takes a millisecond."""
    return httpx.create_ssl_context(verify=False)


def _received(response: httpx.Response, text: str) -> str:
    """The message for a reply that is not JSON."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    # The server's text comes last: the search for a secret that was cut off looks only at the end.
    what = f"{NO_JSON} but {kind} (status {response.status_code})"
    return f"{what}: check the address, and proxies on the way; it begins: {begin_of(text)}"


def _judged(status: int, text: str, wait: str) -> tuple[FailureKind, str]:
    """(kind, reason) for a status other than 2xx; the reason includes the ``wait`` and the server's message."""
    said = _message(text)
    # The server's text comes last: the search for a secret that was cut off looks only at the end.
    detail = f"{wait}: {said}" if said else wait
    # Before the table, where 429 is a rate limit.
    if status == 429 and _spent(text.lower()):
        return "quota", f"HTTP 429: the account's quota is spent{detail}"
    if status == 400 and (known := _known_refusal(text)) is not None:
        return known[0], f"HTTP 400: {known[1]}{detail}"
    if status in _BY_STATUS:
        kind, meaning = _BY_STATUS[status]
        return kind, f"HTTP {status}: {meaning}{detail}"
    if status >= 500:
        return "server", f"HTTP {status}: the server failed{detail}"
    if 300 <= status < 400:
        return "refused", f"HTTP {status}: the server sends elsewhere; give the final URL"
    return "refused", f"HTTP {status}: the server refuses this request{detail}"


_FILTERED = "the provider's content filter refuses this request"


def _known_refusal(text: str) -> tuple[FailureKind, str] | None:
    """(kind, meaning) of a 400 that is no fault of the request: a content filter, or an account without credit."""
    error = _error_in(text)
    failed = None if error is None else error_of(error, "")
    if failed is None or (failed.kind != "quota" and failed.finish != CONTENT_FILTER):
        return None
    return (failed.kind, "the account is spent") if failed.kind == "quota" else (failed.kind, _FILTERED)


def _error_in(text: str) -> Any:
    """The error object in an error's body; None without one."""
    try:
        value = msgspec.json.decode(text[:_ERROR_TEXT].encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value.get("error") if isinstance(value, dict) else None


def _spent(text: str) -> bool:
    """Whether a 429 means an account without credit, by its body in lower case.

    Gemini words each of its limits as a quota, and says for which time: one of a day is not waited for.
    """
    if "quotafailure" in text or "retrydelay" in text:
        return "perday" in text
    return _RATE_WORD not in text and any(word in text for word in _QUOTA_WORDS)


_RETRY_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d{1,9}(?:\.\d{1,9})?)s"')


def _wait_in(text: str) -> float | None:
    """The wait in the body of a 429, where Gemini says it."""
    found = _RETRY_DELAY.search(text[:_ERROR_TEXT])
    return float(found[1]) if found else None


def _message(text: str) -> str:
    """The message in an error's body, in common forms; otherwise the beginning of the body."""
    try:
        value = msgspec.json.decode(text[:_ERROR_TEXT].encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return " ".join(text[:_SHOWN].split())
    for key in ("error", "message", "Message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return " ".join(value.split())[:_SHOWN] if isinstance(value, str) else ""


def _cut(error: Exception) -> str:
    """The reason for an incomplete reply. If the server speaks another protocol, the message points to the URL."""
    said = str(error)
    if isinstance(error, httpx.ProxyError):
        return f"the proxy that the environment names does not lead there: {said[:_SHOWN]}"
    if isinstance(error, httpx.RemoteProtocolError) and not any(word in said for word in _GONE):
        # The server's text comes last: the search for a secret that was cut off looks only at the end.
        return f"what came is not HTTP as it is read here, see the URL: {said[:_SHOWN]}"
    return f"the connection was cut: {type(error).__name__}"


def _cause(error: BaseException) -> str:
    """The message of the error's root cause."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
