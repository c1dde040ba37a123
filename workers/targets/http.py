"""Targets of kind http (a JSON template in, a JSON path out), and the parts that all kinds over HTTP share."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from evalq.evalcore.model.calls import Served
from evalq.evalcore.records.answers import BadAnswer, read_envelope
from evalq.evalcore.records.json_values import NothingThere, find_at, parse_path
from evalq.evalcore.records.usage import token_parts
from evalq.workers.targets.answers import Answered, Call, Failure, FailureKind, answered, begin_of
from evalq.workers.targets.target import Client, ParameterTarget

if TYPE_CHECKING:
    from evalq.workers.targets.events import Joined
    from evalq.workers.targets.web import Reply, Sign  # with httpx, which takes a while to import


# -- templates of requests --------------------------------------------------------------------------

_PLACEHOLDERS = ("prompt", "agent", "case", "repeat", "messages")
"""The placeholders that a call fills; other names are parameters of the target."""
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """``template`` with its placeholders replaced, in one pass, so that braces inside a value are not replaced.

    A text that is only a placeholder becomes the value itself: {repeat} becomes a number. Inside other text, a value
    that is neither text nor a number becomes its JSON.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and whole[1] in values:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda match: _as_text(values.get(match[1], match[0])), template)
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [fill(value, values) for value in template]
    return template


def _as_text(value: Any) -> str:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if plain else msgspec.json.encode(value).decode()


def _mentions(template: Any, name: str) -> bool:
    """Whether ``{name}`` occurs anywhere in the template."""
    if isinstance(template, str):
        return f"{{{name}}}" in template
    if isinstance(template, dict):
        return any(_mentions(value, name) for value in template.values())
    return isinstance(template, list | tuple) and any(_mentions(value, name) for value in template)


# -- addresses and headers, and their secrets -----------------------------------------------------------


def _with_host(url: str) -> str:
    parts = urlsplit(url)  # raises ValueError for brackets that hold no address
    if not parts.hostname or parts.port == 0:  # reading the port raises ValueError for one that is none
        raise ValueError("not an address: it needs a host, and a port from 1 to 65535 or none")
    return url


Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$"), AfterValidator(_with_host)]
BaseUrl = Annotated[Url, Field(pattern=r"^[^?#]+$")]
"""An address to which a path is added."""
_MOST_ADDRESSES = 64


def _each_is(of: TypeAdapter[str]) -> AfterValidator:
    """Holds one address, or each of a list of them, to its type, and reports the first that is none."""

    def check(value: str | list[str]) -> str | list[str]:
        listed = [value] if isinstance(value, str) else value
        if not 0 < len(listed) <= _MOST_ADDRESSES or len({*listed}) < len(listed):
            raise PydanticCustomError("addresses", "one address, or a list of different ones")
        for number, each in enumerate(listed):
            try:
                of.validate_python(each)
            except ValidationError as error:
                at = "" if isinstance(value, str) else f"address {number + 1} of the list: "
                fault = {"at": at, "why": error.errors()[0]["msg"]}
                raise PydanticCustomError("address", "{at}{why}", fault) from None
        return value

    return AfterValidator(check)


def _texts(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        return value
    raise PydanticCustomError("addresses", "one address, or a list of them, each a text")


Urls = Annotated[str | list[str], BeforeValidator(_texts), _each_is(TypeAdapter(Url))]
BaseUrls = Annotated[str | list[str], BeforeValidator(_texts), _each_is(TypeAdapter(BaseUrl))]
"""One address, or a list of equal endpoints: calls go round among those that answer."""
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
Headers = dict[_HeaderName, Annotated[str, Field(pattern=r"^[ -~]*$")]]


def each_of(urls: str | list[str]) -> list[str]:
    """All addresses of an entry."""
    return [urls] if isinstance(urls, str) else urls


def shown(urls: str | list[str]) -> str:
    """The URL, or each of them, with only scheme, host, port and path, which have no secrets."""
    if not isinstance(urls, str):
        return ", ".join(map(shown, urls))
    parts = urlsplit(urls)
    port = f":{parts.port}" if parts.port else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path}"


_SECRET_NAME = re.compile(
    r"authori[sz]ation|authenticat|cookie|secret|passw|credential|session|signature|api[-_]?key|token$|"
    r"(^|[-_.])(auth|token|key|sig|code|pwd|pass|private|bearer|jwt)($|[-_.])",
    re.IGNORECASE,
)
"""Names of headers and URL parameters whose values are secrets."""
_SECRET_VALUE = re.compile(
    r"secret|^(sk|pk|rk|ghp|gho|github_pat|xox[abp]|hf|glpat)[-_][A-Za-z0-9]|^(AKIA|AIza|eyJ)[A-Za-z0-9]", re.ASCII
)
"""Values that are recognisable as secrets, whatever the header's name."""
_SCHEME = re.compile(r"^(bearer|basic|token|apikey|key|digest|negotiate)\s+", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether the value of a header or URL parameter with this name is a secret."""
    return bool(_SECRET_NAME.search(name))


def secrets_of(urls: str | list[str], headers: Mapping[str, str]) -> Iterator[str]:
    """The secrets in headers and URL parameters, and the URLs' passwords, both as written and as sent."""
    for name, value in headers.items():
        if is_secret(name) or _SECRET_VALUE.search(value):
            yield from (value, _SCHEME.sub("", value))
            # A cookie header has several values, and a server may repeat one of them.
            yield from (each.partition("=")[2].strip() for each in value.split(";") if "cookie" in name.lower())
    for url in each_of(urls):
        yield from _secrets_in(url)


def _secrets_in(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    yield from (value for name, value in parse_qsl(parts.query) if is_secret(name))
    pairs = (pair.partition("=") for pair in parts.query.split("&"))
    yield from (value for name, _, value in pairs if is_secret(name))
    user, password = parts.username or "", parts.password or ""
    if user or password:
        # A user without a password is a key: some services take their key in this form.
        secret = password or user
        yield from (secret, unquote(secret))
        yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


# -- the kind http ----------------------------------------------------------------------------------


class HttpTarget(ParameterTarget):
    """Any HTTP endpoint: a JSON template in, a JSON path out."""

    takes_envelopes: ClassVar[bool] = True

    kind: Literal["http"]
    url: Urls = Field(description="Where calls are posted: an address, or a list of equal ones")
    headers: Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")
    api_key_header: _HeaderName = Field(
        default="Authorization", description="Header of the key; in Authorization, a bearer"
    )
    body: Any = Field(
        description="The JSON to send; {prompt}, {agent}, {case}, {repeat} stand for the call's, {messages} for a "
        "chat, the name of a parameter for its value"
    )
    answer: str = Field(default="", description="Path of the answer in the reply; empty: the whole reply")
    finish_reason: str | None = Field(default=None, description="Path of the reason why the answer ended")
    prompt_tokens: str | None = Field(default=None, description="Path of the number of prompt tokens")
    completion_tokens: str | None = Field(default=None, description="Path of the number of completion tokens")

    @field_validator("answer", "finish_reason", "prompt_tokens", "completion_tokens")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        if value is not None:
            parse_path(value)
        return value

    @model_validator(mode="after")
    def _places(self) -> HttpTarget:
        for name in {*self.parameters, *self.variable}:
            if name in _PLACEHOLDERS or not _mentions(self.body, name):
                raise PydanticCustomError("place", "body: has no place {name} for a parameter", {"name": f"{{{name}}}"})
            if name not in self.parameters:
                raise PydanticCustomError(
                    "value", "parameters: {name} needs a value for when it is not chosen", {"name": name}
                )
        return self

    def address(self) -> str:
        """The URL without secrets."""
        return shown(self.url)

    def secrets(self) -> Iterator[str]:
        """The secrets in its headers and URL."""
        return secrets_of(self.url, self.headers)

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """A client that posts to the URL."""
        return HttpClient(self, key)


# -- posting, and reading replies -------------------------------------------------------------------

_HIDDEN_TOKENS = 1 << 20
"""The most tokens that a reply may count beyond its bytes: of the server's own prompt, or of hidden reasoning."""


_REST_SECONDS = 5.0
"""How long calls avoid an endpoint that did not answer, while another one does."""


class PostingClient:
    """The base of clients that post JSON. The ``key`` goes into a header; in Authorization, as a bearer.

    Of several ``urls``, which are equal endpoints, each call goes to the next one that answers. ``sign`` gives headers
    that depend on the request.
    """

    def __init__(
        self,
        urls: str | list[str],
        headers: Mapping[str, str],
        key: str | None,
        max_bytes: int,
        *,
        key_header: str = "Authorization",
        sign: Sign | None = None,
    ) -> None:
        from evalq.workers.targets.web import Web  # httpx takes a while to import

        bearer = f"Bearer {key}" if key_header.lower() == "authorization" else key
        sent = headers if bearer is None or key is None else {**headers, key_header: bearer}
        self._endpoints = [Web(url, sent, max_bytes, sign) for url in each_of(urls)]
        self._turn = 0
        self._avoided: dict[int, float] = {}

    async def open(self) -> None:
        """Nothing to do before the first call."""

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints:
            await endpoint.close()

    async def post(
        self, body: Any, headers: Mapping[str, str] | None = None, joining: Callable[[], Joined] | None = None
    ) -> Reply | Failure:
        """Send ``body``, with ``headers`` beside the target's own.

        If an endpoint cannot be reached, the call goes on to the next one. ``joining`` makes what joins the events of a
        stream into one reply.
        """
        for number in self._order():
            try:
                joined = None if joining is None else joining()
                result = await self._endpoints[number].post(body, headers, joined)
            except asyncio.CancelledError:  # the time of the call is over
                self._avoid(number)
                raise
            if not isinstance(result, Failure) or not result.down:
                self._avoided.pop(number, None)
                return result
            self._avoid(number)
            if result.connected:
                return result  # this call may have been paid: its next try goes elsewhere
        return result

    def _avoid(self, number: int) -> None:
        self._avoided[number] = time.monotonic() + _REST_SECONDS

    def _order(self) -> list[int]:
        """The endpoints in the order in which a call tries them: those that did not answer last."""
        now = time.monotonic()
        late = {number: until for number, until in self._avoided.items() if until > now}
        good = [number for number in range(len(self._endpoints)) if number not in late]
        self._turn += 1
        start = self._turn % len(good) if good else 0
        return good[start:] + good[:start] + sorted(late, key=lambda number: late[number])


class HttpClient(PostingClient):
    """Calls of a target of kind http."""

    def __init__(self, target: HttpTarget, key: str | None) -> None:
        super().__init__(target.url, target.headers, key, target.max_bytes, key_header=target.api_key_header)
        self._target = target
        self._answer = parse_path(target.answer)

    async def call(self, call: Call) -> Answered | Failure:
        """Post the filled template; the answer is the value at the target's ``answer`` path."""
        if call.has_turns and not _mentions(self._target.body, "messages"):
            # Before the first call is paid: the next one would be a conversation that the agent never sees.
            reason = "the case has turns, and the target's body has no {messages}, which stands for the conversation"
            return Failure(kind="refused", reason=reason)
        body = fill(self._target.body, {**self._target.parameters, **call.fillings()})
        reply = await self.post(body, call.headers)
        if isinstance(reply, Failure):
            return reply
        try:
            found = find_at(reply.value, self._answer)
        except NothingThere as error:
            what = f"{error}; set the target's `answer` to the answer's path; the reply begins: {begin_of(reply.text)}"
            return bad_reply(reply, what, reply.text)
        prompt, completion = self._target.prompt_tokens, self._target.completion_tokens
        if self._target.output == "envelope":
            try:
                return answered(read_envelope(found), reply.seconds, limits=reply.limits)
            except BadAnswer as error:
                return bad_reply(reply, f"not an envelope: {self._target.answer or 'the reply'}: {error}", reply.text)
        return Answered(
            text=found if isinstance(found, str) else msgspec.json.encode(found).decode(),
            latency_seconds=reply.seconds,
            finish_reason=text_or_none(_optional(reply, self._target.finish_reason)),
            limits=reply.limits,
            **token_counts(reply, _optional(reply, prompt), _optional(reply, completion)),
        )


def bad_reply(reply: Reply, reason: str, text: str, kind: FailureKind = "bad_output") -> Failure:
    return Failure(kind=kind, reason=reason, text=text, latency_seconds=reply.seconds,
                   limits=reply.limits)  # fmt: skip


def _optional(reply: Reply, path: str | None) -> Any:
    return None if path is None else value_at(reply.value, parse_path(path))


def value_at(value: Any, steps: tuple[str | int, ...]) -> Any:
    try:
        return find_at(value, steps)
    except NothingThere:
        return None


def token_counts(reply: Reply, prompt: Any, completion: Any, **parts: Any) -> dict[str, Any]:
    """The reply's token counts; a count that is impossible for a call of this size is None, and the note says so.

    A token has at least one byte. Costs and pacing depend on these numbers, so evalq does not trust the server blindly.
    ``parts`` are further fields of `Answered`: tokens of a cache, of reasoning.
    """
    sized = {"prompt_tokens": (prompt, reply.asked_bytes), "completion_tokens": (completion, reply.reply_bytes)}
    sizes = {"reasoning_tokens": reply.reply_bytes}
    sized |= {name: (value, sizes.get(name, reply.asked_bytes)) for name, value in parts.items()}
    # Compare the exact type: isinstance would accept True as an int.
    usable = {name: type(value) is int and 0 <= value <= size + _HIDDEN_TOKENS for name, (value, size) in sized.items()}
    notes = [
        f"{name} of the reply ignored: {_shown(value)} is no number that a call of {size} bytes can have"
        for name, (value, size) in sized.items()
        if value is not None and not usable[name]
    ]
    counts = {name: value if usable[name] else None for name, (value, _) in sized.items()}
    for whole, names in (("prompt_tokens", _OF_PROMPT), ("completion_tokens", ("reasoning_tokens",))):
        known = {name: count for name in names if (count := counts.get(name))}
        total = counts[whole]
        if known and total is not None and sum(known.values()) > total:
            notes.append(f"{', '.join(known)} of the reply ignored: {sum(known.values())} of {total} {whole}")
            counts |= dict.fromkeys(known, None)
    return {**counts, "note": "; ".join(notes)}


def usage_counts(reply: Reply, usage: Any) -> dict[str, Any]:
    """The token counts in the usage that a provider's reply states, in any of their forms."""
    parts = token_parts(usage) if isinstance(usage, Mapping) else {}
    fields = {
        "cached_tokens": parts.get("cached_input"),
        "cache_write_tokens": parts.get("cache_write"),
        "cache_write_1h_tokens": parts.get("cache_write_1h"),
        "reasoning_tokens": parts.get("reasoning"),
    }
    return token_counts(reply, parts.get("input"), parts.get("output"), **fields)


_OF_PROMPT = ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_LONGEST_NAME = 200


def served_by(value: Any, model: str, fingerprint: str = "", provider: str = "") -> dict[str, Any]:
    """The field of the model that answered, from the keys of the reply that name it; none if it names none."""
    found = [text_or_none(value_at(value, (key,))) if key else None for key in (model, fingerprint, provider)]
    served = Served(*((text or "")[:_LONGEST_NAME] for text in found))
    return {"served": served} if served else {}


def _shown(value: Any) -> str:
    return repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"


def text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None
