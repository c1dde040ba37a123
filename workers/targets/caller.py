"""Call a target within its time, check its contract, cut secrets out; and pace and retry calls by its policy."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from urllib.parse import quote

import msgspec

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import Served
from evalq.evalcore.records.answers import clean, clean_value
from evalq.evalcore.records.json_values import NoJson, extract
from evalq.evalcore.views.markdown import plural
from evalq.workers.processes.environment import inherited, is_secret
from evalq.workers.targets.answers import Answered, Call, Failure, off_loop
from evalq.workers.targets.target import NamedTarget, RetryRule, Target

if TYPE_CHECKING:
    from evalq.workers.targets.providers.tools import TakesTools, ToolBox

R = TypeVar("R", Answered, Failure)

_unpaired = re.compile("[\ud800-\udfff]")
_percent = re.compile("%[0-9A-F]{2}")
_SECRET_AT_LEAST = 6
"""evalq does not look for a shorter value in texts: it would find it everywhere."""


class Caller:
    """One target, ready for calls; many calls may run at once inside one ``async with``.

    Raises ConfigError if the environment lacks the key, or if something that the target names cannot be read. Entering
    it raises ConfigError if a function cannot be imported.
    """

    def __init__(self, named: NamedTarget, environment: Mapping[str, str] | None = None) -> None:
        environment = inherited() if environment is None else environment
        self.named = named
        self._seconds = None if named.target.times_itself else named.target.timeout_seconds
        key = _key(named, environment)
        self._secrets = _secrets(named, key, environment)
        try:
            self._client = named.target.client(named.folder, key, environment)
        except ConfigError as error:
            raise ConfigError(f"target {named.name}: {error}") from None
        self.tools = _tool_box(named, environment)

    async def __aenter__(self) -> Caller:
        try:
            await self._client.open()
            if self.tools is not None:
                await self.tools.open(cast("TakesTools", self._client))
        except BaseException as error:
            await self._close()
            if isinstance(error, ConfigError):
                raise ConfigError(f"target {self.named.name}: {error}") from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        try:
            if self.tools is not None:
                await self.tools.close()
        finally:
            await self._client.close()

    def clean(self, value: Any) -> Any:
        """A tool's result, made writable and without the target's secrets."""
        return clean_value(value, lambda text: self._scrub(_unpaired.sub("\ufffd", text))[0])

    async def call(self, call: Call) -> Answered | Failure:
        """Make one call, once; return an answer that keeps the contract, or a failure. Never raises for a call."""
        target, began = self.named.target, time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                result = await self._client.call(call)
        # Catch this before OSError, its base class.
        except TimeoutError:
            reason = f"no answer within {target.timeout_seconds:g} s (timeout_seconds)"
            # A call may have waited before it began, for a thread say. Count no more time than it may take.
            took = min(time.monotonic() - began, target.timeout_seconds)
            result = Failure(kind="timeout", reason=reason, down=True, latency_seconds=took)
        except OSError as error:
            reason = f"cannot be started: {error.strerror or error}"
            result = Failure(kind="server", reason=reason, down=True, connected=False)
        except Exception as error:  # one failed call must not end the process that makes all of them
            reason = f"the call failed: {type(error).__name__}: {error}"
            result = Failure(kind="server", reason=reason, latency_seconds=time.monotonic() - began)
        # An answer that says nothing would pass every check that only forbids something.
        says = isinstance(result, Answered) and not result.silent
        text = target.output == "text" or (target.output in (None, "envelope") and call.takes_text and says)
        return await off_loop(len(result.text), self._checked, result, not text)

    def _checked(self, result: Answered | Failure, needs_json: bool) -> Answered | Failure:
        """The result, made writable, held to its contract, and without secrets."""
        result = _writable(result)
        if isinstance(result, Answered) and needs_json and not self._is_between(result):
            result = _calls_only(result) or _contracted(result)
        return self._scrubbed(result)

    def _is_between(self, answer: Answered) -> bool:
        """Whether the model's tools are answered, so that the answer goes on."""
        calls = answer.envelope.tool_calls if answer.envelope is not None else None
        return bool(calls) and self.tools is not None and not self.tools.ends(str(call["name"]) for call in calls or ())

    def _scrubbed(self, result: Answered | Failure) -> Answered | Failure:
        """The result without the target's secrets, which a server may send back; cuts are counted and noted."""
        text, cut = self._scrub(result.text)
        result, more = self._scrubbed_names(result)
        cut += more
        if isinstance(result, Failure):
            reason, more = self._scrub(result.reason)
            text, reason = self._scrub_end(text), self._scrub_end(reason)
            return msgspec.structs.replace(_cut(result, cut + more), text=text, reason=reason)
        if result.envelope is not None:
            counted = [0]

            def scrub(part: str) -> str:
                part, found = self._scrub(part)
                counted[0] += found
                return part

            envelope = clean(result.envelope, scrub)
            result = msgspec.structs.replace(result, own=clean_value(result.own, scrub))
            # A secret may stand in what the agent did and not in what it says. What the answer says stands twice.
            cut = max(cut, counted[0])
            result = msgspec.structs.replace(result, envelope=envelope) if cut else result
        if not cut:
            return result
        # Decode again from the scrubbed text: the earlier output still holds the secret.
        scrubbed = msgspec.structs.replace(_cut(result, cut), text=text)
        return _contracted(scrubbed) if result.output is not None else scrubbed

    def _scrubbed_names(self, result: Answered | Failure) -> tuple[Answered | Failure, int]:
        """The result without secrets in the names that a reply gives: of the model, and why the answer ended."""
        names = [*(getattr(result.served, name) for name in Served.__struct_fields__), result.finish_reason or ""]
        scrubbed = [self._scrub(name) for name in names]
        cut = sum(count for _, count in scrubbed)
        # evalq keeps the first letters of a long name, and so perhaps the first of a secret.
        *served, finish = (self._scrub_end(text) for text, _ in scrubbed)
        if [*served, finish] == names:
            return result, 0
        return msgspec.structs.replace(result, served=Served(*served), finish_reason=finish or None), cut

    def _scrub(self, text: str) -> tuple[str, int]:
        """``text`` without secrets, and how many there were."""
        count = 0
        for secret in self._secrets:
            if found := text.count(secret):
                text, count = text.replace(secret, "***"), count + found
        return text, count

    def _scrub_end(self, text: str) -> str:
        """Replace the first part of a secret at the end of ``text``, which may be cut off there."""
        for secret in self._secrets:
            for length in range(len(secret) - 1, _SECRET_AT_LEAST - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + "***"
        return text


def _cut(result: R, count: int) -> R:
    """``result`` with a note of how many secrets are cut out of it."""
    if not count:
        return result
    hidden = f"{plural(count, 'secret')} of this machine cut out of the reply (***)"
    return msgspec.structs.replace(result, cut=count, note="; ".join(filter(None, (result.note, hidden))))


def _tool_box(named: NamedTarget, environment: Mapping[str, str]) -> ToolBox | None:
    tools = getattr(named.target, "tools", None)
    if tools is None:
        return None
    from evalq.workers.targets.providers.tools import ToolBox

    try:
        return ToolBox(tools, named.folder, environment)
    except ConfigError as error:
        raise ConfigError(f"target {named.name}: tools: {error}") from None


class Pacer(Protocol):
    """Gives each call of a target its turn, and learns what came of it: of the fleet, or of this process alone."""

    async def acquire(self, share: tuple[str, ...] = ()) -> Any:
        """Wait for a turn as one of this ``share``, which `settle` is given.

        Raises BrokerUnreachable if a server that paces is lost.
        """

    def settle(
        self,
        grant: Any,
        *,
        refused: bool,
        served: bool,
        retry_after_seconds: float | None,
        spent: bool,
        tokens: int | None,
    ) -> None:
        """``refused`` by a rate limit, or ``served``; ``spent``: the next call would be refused."""


async def attempt(
    caller: Caller,
    pacer: Pacer,
    call: Call,
    wanted: Callable[[], Awaitable[bool]] | None = None,
    slot: contextlib.AbstractAsyncContextManager[object] | None = None,
    share: tuple[str, ...] = (),
) -> Answered | Failure | None:
    """Wait until the fleet's pace allows a call, and then for its ``slot``; then make one call.

    Ask ``wanted`` last. If the call is not wanted any more, make none and return None. Raises BrokerUnreachable if the
    server that paces is lost.
    """
    grant = await pacer.acquire(share)
    result: Answered | Failure | None = None
    try:
        # Take a slot after the pace: a slot that waits for a slow target would be lost to all other targets.
        async with slot or contextlib.nullcontext():
            if wanted is None or await wanted():
                result = await caller.call(call)
    # Settle however it ends, also if cancelled: otherwise the grant would count as in flight from then on.
    finally:
        failure = result if isinstance(result, Failure) else None
        pacer.settle(
            grant,
            refused=failure is not None and failure.kind == "rate_limit",
            # A refused request or an answer that is not JSON was still served: the target's rate limit let it through.
            served=result is not None and (failure is None or failure.kind in ("refused", "bad_output")),
            retry_after_seconds=failure.retry_after_seconds if failure else None,
            spent=result is not None and result.limits.spent,
            tokens=result.tokens if result is not None else None,
        )
    return result


class Tries:
    """Counts the tries of one call; decides by its target's policy whether to try again."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._before: dict[str, int] = {}

    def wait(self, result: Answered | Failure) -> float | None:
        """Seconds until the next try; None if ``result`` is final."""
        if not isinstance(result, Failure):
            return None
        rule, before = self._target.rule(result.kind), self._before.get(result.kind, 0)
        retry_after = result.retry_after_seconds
        if before >= rule.times or (retry_after is not None and retry_after > rule.longest_seconds):
            return None
        self._before[result.kind] = before + 1
        return _wait(rule, before, retry_after)


async def call_paced(caller: Caller, pacer: Pacer, call: Call) -> list[Answered | Failure]:
    """Make a call at the fleet's pace, and retry it by the target's policy. Return every attempt; the last one counts.

    Raises BrokerUnreachable if the server that paces is lost.
    """
    attempts: list[Answered | Failure] = []
    tries = Tries(caller.named.target)
    while True:
        result = await attempt(caller, pacer, call)
        assert result is not None  # it is always wanted
        attempts.append(result)
        wait = tries.wait(result)
        if wait is None:
            return attempts
        await asyncio.sleep(wait)


def _wait(rule: RetryRule, before: int, retry_after: float | None) -> float:
    """Seconds to wait, as the server or else the policy says; up to a tenth more, so that not all come at once."""
    wait = rule.wait_seconds * rule.factor**before if retry_after is None else retry_after
    return wait * (1 + random.random() / 10)  # noqa: S311 - no secret


def _writable(result: Answered | Failure) -> Answered | Failure:
    """Replace lone surrogates: UTF-8 has none, so evalq could not write the record."""
    text = _unpaired.sub("\ufffd", result.text)
    if isinstance(result, Failure):
        return msgspec.structs.replace(result, text=text, reason=_unpaired.sub("\ufffd", result.reason))
    envelope = result.envelope and clean(result.envelope, lambda part: _unpaired.sub("\ufffd", part))
    return msgspec.structs.replace(result, text=text, envelope=envelope)


def _calls_only(answer: Answered) -> Failure | None:
    """The failure of an answer that calls tools and says nothing, where JSON is wanted."""
    calls = answer.envelope.tool_calls if answer.envelope is not None else None
    if answer.text.strip() or not calls:
        return None
    names = ", ".join(dict.fromkeys(str(call["name"]) for call in calls[:20]))
    shared: dict[str, Any] = {name: getattr(answer, name) for name in _SHARED}
    return Failure(
        kind="bad_output", reason=f"calls of tools ({names[:200]}) and no text, where JSON is wanted", **shared
    )


def _contracted(answer: Answered) -> Answered | Failure:
    try:
        return msgspec.structs.replace(answer, output=extract(answer.text))
    except NoJson as error:
        shared: dict[str, Any] = {name: getattr(answer, name) for name in _SHARED}
        cut = " (cut off: finish_reason length)" if answer.finish_reason == "length" else ""
        return Failure(kind="bad_output", reason=f"{error}{cut}", **shared)


_SHARED = (
    *("text", "latency_seconds", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens"),
    *("cache_write_1h_tokens", "reasoning_tokens", "cost", "first_token_seconds", "served", "finish_reason"),
    *("limits", "note", "cut"),
)
"""What an answer and a failure both have."""


def _secrets(named: NamedTarget, key: str | None, environment: Mapping[str, str]) -> list[str]:
    """Texts that must not come back, the longest first.

    They are the keys of all targets in the file, granted variables that may be secret, headers with secret names, and
    the URL's password and keys.
    """
    granted = filter(is_secret, named.target.granted())
    # Take those of all targets in the file: an agent may have got, or found, another target's key.
    others = (environment.get(name, "").strip() for name in (*named.keys, *granted))
    # Replace the longest first: otherwise a secret that contains a shorter one is replaced only in part.
    found = [key or "", *others, *named.target.secrets()]
    forms = {form for text in found if len(text) >= _SECRET_AT_LEAST for form in _written(text)}
    return sorted(forms, key=len, reverse=True)


def _written(text: str) -> Iterator[str]:
    """``text`` in all forms that servers write: as it is, in JSON, and in URLs.

    Some servers escape each solidus in JSON, or the characters that have a meaning in HTML. Escapes in URLs may have
    upper-case or lower-case letters.
    """
    inner = msgspec.json.encode(text).decode()[1:-1]
    yield from (text, inner, inner.replace("/", "\\/"))
    yield re.sub("[&<>]", lambda found: f"\\u{ord(found[0]):04x}", inner)  # as Go does
    yield re.sub("[&<>'=]", lambda found: f"\\u{ord(found[0]):04x}", inner)  # as Gson does, in Java
    yield re.sub("[&<>'+`]", lambda found: f"\\u{ord(found[0]):04X}", inner)  # as .NET does
    for quoted in (quote(text), quote(text, safe="")):
        yield from (quoted, _percent.sub(lambda found: found[0].lower(), quoted))


def _key(named: NamedTarget, environment: Mapping[str, str]) -> str | None:
    name = named.target.api_key_env
    if name is None:
        return None
    key = environment.get(name, "").strip()
    if not key:
        raise ConfigError(f"target {named.name}: the environment has no {name}, which api_key_env names")
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"target {named.name}: what {name} holds cannot be a key: it has line ends, or other than ASCII characters"
        )
    return key
