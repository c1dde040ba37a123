"""Calls over HTTP: send a request, read its reply within limits, and give each failure its kind."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Mapping
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
from evalq.evalcore.records.json_values import MAX_ANSWER_DEPTH, deeper_than
from evalq.workers.targets.answers import Failure, FailureKind, Quota, RateLimits, begin_of, off_loop

# -- the body of a reply: read raw, and limited both as sent and as unpacked ----------------------------

_GZIP = 16 + zlib.MAX_WBITS
_PIECES_A_STEP = 256
"""After this many pieces other calls get their turn, because a server may send single bytes."""
# A reply with a smaller mean piece is refused: it would only keep this process busy.
_BYTES_A_PIECE = 64
_FREE_PIECES = 10_000


_LAYERS = ("_stream", "_httpcore_stream", "_connection")
"""Attributes that lead from a stream of httpx or httpcore to its connection."""


class _ReplyBody(msgspec.Struct, frozen=True):
    """The ``data`` that was read, and the ``fault`` that ended the reading early, or ""."""

    data: bytes
    fault: str = ""


async def _read_body(response: httpx.Response, most: int) -> _ReplyBody:
    """Read a body of at most ``most`` bytes, both as sent and as unpacked. Unpacks one layer of gzip.

    evalq never asks for gzip, but some servers send it. Raises httpx.HTTPError if the connection fails.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        return _ReplyBody(
            b"", f"the reply's Content-Encoding is {coding[:40]!r}: evalq asks for identity and reads gzip only"
        )
    unpack = zlib.decompressobj(_GZIP) if "gzip" in coding else None
    data, sent, pieces = bytearray(), 0, 0
    async for piece in response.aiter_raw():
        sent, pieces = sent + len(piece), pieces + 1
        if pieces > _FREE_PIECES + most // _BYTES_A_PIECE:
            return _ReplyBody(bytes(data), f"the reply comes in over {pieces - 1} pieces")
        if pieces % _PIECES_A_STEP == 0:
            await asyncio.sleep(0)
        if unpack is None:
            data += piece
        else:
            try:
                # Unpack at most one byte beyond the limit: it is enough to refuse a decompression bomb.
                data += unpack.decompress(piece, most + 1 - len(data))
            except zlib.error:
                return _ReplyBody(bytes(data), "the reply is not the gzip that its Content-Encoding says")
            if unpack.unused_data:
                return _ReplyBody(bytes(data), "the reply goes on behind the end of its gzip")
        if max(sent, len(data)) > most:
            return _ReplyBody(bytes(data), f"the reply is longer than max_bytes, {most}")
    # An empty body is not gzip, but it is valid.
    if unpack is not None and sent and not unpack.eof:
        return _ReplyBody(bytes(data), "the reply's gzip is cut off")
    return _ReplyBody(bytes(data))


def _has_surplus(response: httpx.Response) -> bool:
    """Whether bytes followed the reply, or that is unknown; the connection must not be used again then.

    The next request on that connection would take these bytes for its reply.
    """
    if "transfer-encoding" in response.headers and "content-length" in response.headers:
        return True  # two lengths: the server and a proxy may see different ends of the body
    stream = response.extensions.get("network_stream")
    if stream is None or stream.get_extra_info("is_readable"):
        return True
    # httpcore starts the next cycle with bytes that h11 has read but not used, and has no public access to them.
    found: object = response.stream
    while found is not None:
        state = getattr(found, "_h11_state", None)
        if state is not None:
            return bool(state.trailing_data[0])
        found = next((getattr(found, name) for name in _LAYERS if hasattr(found, name)), None)
    return True


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
    """``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, and without a last part for requests."""
    return RateLimits(_quota(headers, "requests"), _quota(headers, "tokens"))


def _quota(headers: Mapping[str, str], what: str) -> Quota:
    def header(part: str) -> str | None:
        value = headers.get(f"x-ratelimit-{part}-{what}")
        return headers.get(f"x-ratelimit-{part}") if value is None and what == "requests" else value

    limit, remaining = _number(header("limit")), _number(header("remaining"))
    return Quota(
        None if limit is None else int(limit),
        None if remaining is None else int(remaining),
        _seconds(header("reset"), headers),
    )


def _seconds(text: str | None, headers: Mapping[str, str]) -> float | None:
    """A reset as "1m30.5s", as seconds, or as a point in time (seconds since 1970)."""
    if text is None:
        return None
    number = _number(text)
    if number is not None:
        return number if number < _EPOCH else max(0.0, number - _now(headers).timestamp())
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
_QUOTA_WORDS = ("insufficient_quota", "billing", "quota_exceeded", "exceeded your current quota")
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
    429: ("rate_limit", "asked too often"),
}


class Reply(msgspec.Struct, frozen=True):
    """A reply with a status 2xx and JSON: its ``value``, its text, and the ``limits`` from its headers.

    ``asked_bytes`` and ``reply_bytes`` are the sizes of the request and the reply.
    """

    value: Any
    text: str
    limits: RateLimits
    seconds: float
    asked_bytes: int
    reply_bytes: int


class Web:
    """A client of one endpoint, which keeps its connections open until `close`.

    Each call in flight has its own httpx client, and so its own connection pool. A shared pool checks every connection
    for every call, which with a hundred calls takes several times as long as the rest of a call.
    """

    def __init__(self, url: str, headers: Mapping[str, str], max_bytes: int) -> None:
        self._url = url
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

    async def post(self, body: Any, headers: Mapping[str, str] | None = None) -> Reply | Failure:
        """Send ``body`` as JSON, with ``headers`` beside the target's own. Returns the reply, or the failure."""
        began = time.monotonic()
        content = msgspec.json.encode(body)
        try:
            async with (
                self._client() as client,
                client.stream("POST", self._url, content=content, headers=headers) as response,
            ):
                body = await _read_body(response, self._max_bytes)
                if body.fault or _has_surplus(response):
                    self._unclean.add(client)
        except httpx.TimeoutException:
            return Failure(kind="timeout", reason="no answer in time", down=True)
        except httpx.ConnectError as error:
            return Failure(kind="server", reason=f"cannot connect: {_cause(error)}", down=True, connected=False)
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
            # A body that is not JSON does not come from the model: it is a proxy's page, or was cut off.
            return Failure(kind="server" if fault == _NO_JSON else "bad_output",
                           reason=_received(response, text) if fault == _NO_JSON else fault,
                           text=text, status=status, latency_seconds=seconds, limits=limits)  # fmt: skip
        return Reply(value, text, limits, seconds, len(content), len(body.data))


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


_NO_JSON = "the reply is not JSON"


def _received(response: httpx.Response, text: str) -> str:
    """The message for a reply that is not JSON."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip() or "no content type"
    # The server's text comes last: the search for a secret that was cut off looks only at the end.
    what = f"{_NO_JSON} but {kind} (status {response.status_code})"
    return f"{what}: check the address, and proxies on the way; it begins: {begin_of(text)}"


def _decoded(data: bytes) -> tuple[str, Any]:
    """("", the value of a reply), or (the fault, None)."""
    try:
        if deeper_than(MAX_ANSWER_DEPTH, data):
            return f"the reply nests deeper than {MAX_ANSWER_DEPTH} levels", None
        return "", msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NO_JSON, None


def _judged(status: int, text: str, wait: str) -> tuple[FailureKind, str]:
    """(kind, reason) for a status other than 2xx; the reason includes the ``wait`` and the server's message."""
    said = _message(text)
    # The server's text comes last: the search for a secret that was cut off looks only at the end.
    detail = f"{wait}: {said}" if said else wait
    # Before the table, where 429 is a rate limit.
    if status == 429 and _spent(text.lower()):
        return "quota", f"HTTP 429: the account's quota is spent{detail}"
    if status in _BY_STATUS:
        kind, meaning = _BY_STATUS[status]
        return kind, f"HTTP {status}: {meaning}{detail}"
    if status >= 500:
        return "server", f"HTTP {status}: the server failed{detail}"
    if 300 <= status < 400:
        return "refused", f"HTTP {status}: the server sends elsewhere; give the final URL"
    return "refused", f"HTTP {status}: the server refuses this request{detail}"


def _spent(text: str) -> bool:
    """Whether a 429 means an account without credit, by its body in lower case."""
    return _RATE_WORD not in text and any(word in text for word in _QUOTA_WORDS)


def _message(text: str) -> str:
    """The message in an error's body, in common forms; otherwise the beginning of the body."""
    try:
        value = msgspec.json.decode(text[:_ERROR_TEXT].encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return " ".join(text[:_SHOWN].split())
    for key in ("error", "message", "detail"):
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
