"""The suite of tests that every kind of target must pass; packages that bring one run it in their own tests.

    from evalq.targets import check_target
    from mypackage import MyTarget

    def test_it_conforms(server) -> None:
        check_target(MyTarget, {"kind": "mine", "url": server.url}, says=server.answer)

It needs no test runner. It makes some twenty calls of the target that the entry describes: give it a server of your
own, not one that costs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args, get_origin

import msgspec

from evalq.evalcore.contract.params import validate
from evalq.evalcore.contract.plugins import error_with_line
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.calls import Served, Tokens
from evalq.evalcore.records.finish import finish_word
from evalq.workers.targets.answers import KINDS, Answered, Call, Failure
from evalq.workers.targets.caller import Caller
from evalq.workers.targets.target import Client, NamedTarget, Target, config_digest, shown_settings

_AT_ONCE = 8
_PROMPT = "conformance"
_PATIENCE = 30.0
_SOON = 5.0
"""A call of a server that is not there fails within so many seconds."""


class TargetConformanceError(AssertionError):
    """A kind of target does not keep the contract; ``violations`` says how: (property, detail)."""

    def __init__(self, kind: str, violations: Sequence[tuple[str, str]]) -> None:
        lines = [f"{name}: {detail}" for name, detail in violations]
        super().__init__("\n  ".join([f"{kind} breaks the contract of targets:", *lines]))
        self.violations = tuple(violations)


class _TriedKind(msgspec.Struct, frozen=True):
    """What is tried: a kind, an entry of it, one whose server is away, and what the server says to a prompt."""

    model: type[Target]
    entry: dict[str, Any]
    away: dict[str, Any] | None
    says: Callable[[str], str] | None
    environment: dict[str, str]
    folder: Path

    def target(self, **more: Any) -> Target:
        """The entry, read."""
        return validate(self.model, {**self.entry, **more}, "the entry")

    def named(self, **more: Any) -> NamedTarget:
        """The entry as a target of a file."""
        return NamedTarget("conformance", self.target(**more), self.folder)

    def client(self, entry: Mapping[str, Any] | None = None) -> Client:
        """A client of the entry."""
        target = self.target() if entry is None else validate(self.model, entry, "the entry")
        key = None if target.api_key_env is None else self.environment.get(target.api_key_env)
        return target.client(self.folder, key, self.environment)


# -- the entry ------------------------------------------------------------------------------------------


def _its_kind(trial: _TriedKind) -> Iterator[str]:
    """The class is a Target, and its field `kind` has one name."""
    kind = trial.model.model_fields.get("kind")
    names = get_args(kind.annotation) if kind is not None and get_origin(kind.annotation) is Literal else ()
    if len(names) != 1:
        yield "it has no field `kind: Literal[NAME]`"
    elif trial.entry.get("kind") != names[0]:
        yield f"the entry's kind is {trial.entry.get('kind')!r}, not {names[0]!r}"
    if not (trial.model.__doc__ or "").strip() or trial.model.__doc__ == Target.__doc__:
        yield "it has no docstring, which the docs would show"
    for name, field in trial.model.model_fields.items():
        if name not in ("kind", *Target.model_fields) and not field.description:
            yield f"the field {name} has no description"


def _refusals(trial: _TriedKind) -> Iterator[str]:
    """A key that is not known is refused, with its name."""
    try:
        trial.target(no_such_key=1)
    except ConfigError as error:
        if "no_such_key" not in str(error):
            yield f"the error does not name the key: {error}"
    else:
        yield "an unknown key is accepted: keep Target's own configuration of the model"


def _written_again(trial: _TriedKind) -> Iterator[str]:
    """An entry that is written as JSON and read again is the same."""
    target = trial.target()
    data = target.model_dump(mode="json", exclude_unset=True)
    if validate(trial.model, json.loads(json.dumps(data)), "the entry written again") != target:
        yield "it is another one"


def _identity(trial: _TriedKind) -> Iterator[str]:
    """Digests are those of what answers depend on: the same for the same entry, without keys, prices and limits."""
    digest = config_digest(trial.named())
    if digest != config_digest(trial.named()):
        yield "the same entry has two digests"
    for key, value in (("timeout_seconds", 7.0), ("max_concurrency", 3), ("price", {"per_call": 1.0})):
        if config_digest(trial.named(**{key: value})) != digest:
            yield f"{key} changes the digest"
    if config_digest(trial.named(identity="other")) == digest:
        yield "`identity` does not change the digest"
    shown_settings(trial.named())


def _address(trial: _TriedKind) -> Iterator[str]:
    """The address is a text, and has no secret of the entry."""
    target = trial.target()
    address: object = target.address()
    if not isinstance(address, str) or not address.strip() or not address.isprintable():
        yield f"{address!r} is no printable text"
    for secret in target.secrets():
        if len(secret) > 3 and secret in str(address):
            yield "it has a secret"
    for name, file in target.files().items():
        if name not in trial.model.model_fields:
            yield f"files() names {name}, which is no key"
        if file is not None and (Path(file).is_absolute() or ".." in Path(file).parts):
            yield f"files() has {file}, which is not below the targets file"


def _parameters(trial: _TriedKind) -> Iterator[str]:
    """A value that callers choose stands in the entry then, and changes the digest."""
    target = trial.target()
    changed = target.with_values({"conformance": 0.5})
    again = trial.target(**{str(key): value for key, value in changed.items()})
    if again.value_of("conformance") != 0.5:
        yield f"value_of gives {again.value_of('conformance')!r} after with_values set 0.5"
    known = NamedTarget("conformance", again, trial.folder)
    if config_digest(known) == config_digest(trial.named()):
        yield "the digest does not change with it"


# -- the client -----------------------------------------------------------------------------------------


def _closing(trial: _TriedKind) -> Iterator[str]:
    """A client can be closed in any state: unopened, open, and closed already."""

    async def closes() -> None:
        await trial.client().close()
        client = trial.client()
        await client.open()
        await client.close()
        await client.close()

    asyncio.run(closes())
    yield from ()


def _calls(trial: _TriedKind) -> Iterator[str]:
    """Calls at once get an answer each, their own, with plausible facts; and so they do in another event loop."""

    async def at_once() -> list[tuple[str, Answered | Failure, float]]:
        async with Caller(trial.named(), trial.environment) as caller:

            async def one(prompt: str) -> tuple[str, Answered | Failure, float]:
                began = time.monotonic()
                result = await caller.call(Call(prompt, case=prompt, takes_text=True))
                return prompt, result, time.monotonic() - began

            return list(await asyncio.gather(*(one(f"{_PROMPT} {number}") for number in range(_AT_ONCE))))

    for _ in range(2):
        for prompt, result, took in asyncio.run(at_once()):
            if isinstance(result, Failure):
                yield f"the call {prompt!r} failed: {result.kind}: {result.reason}"
                continue
            if trial.says is not None and result.text != trial.says(prompt):
                yield f"the answer to {prompt!r} is {result.text[:80]!r}, not {trial.says(prompt)[:80]!r}"
            yield from _facts(result, took)


def _facts(result: Answered, took: float) -> Iterator[str]:
    if not 0 <= result.latency_seconds <= took + 0.01:
        yield f"latency_seconds is {result.latency_seconds:.3f}, and the call took {took:.3f}"
    first = result.first_token_seconds
    if first is not None and not 0 <= first <= result.latency_seconds:
        yield f"first_token_seconds is {first}, and latency_seconds {result.latency_seconds}"
    for name in Tokens.__struct_fields__:
        count = getattr(result.usage, name)
        if count is not None and (type(count) is not int or count < 0):
            yield f"usage.{name} is {count!r}"
    usage = result.usage
    if usage.input is not None and (usage.of_cache or 0) > usage.input:
        yield "usage: more tokens of a cache than of input, which counts both"
    if usage.output is not None and (usage.reasoning or 0) > usage.output:
        yield "usage: more tokens of reasoning than of output, which counts both"
    if not isinstance(result.served, Served):
        yield f"served is {result.served!r}"
    if result.finish_reason is not None and finish_word(result.finish_reason) != result.finish_reason:
        yield f"finish_reason is {result.finish_reason!r}; the common word is {finish_word(result.finish_reason)!r}"


def _bare_calls(trial: _TriedKind) -> Iterator[str]:
    """The client itself returns an answer or a failure, also for a chat and for a prompt of odd letters."""

    async def call() -> list[Any]:
        client = trial.client()
        await client.open()
        try:
            chat = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": _PROMPT})
            odd = 'quote " brace {x} percent %s newline \n null \0 Köln 한국 \U0001f600'
            calls = (Call(_PROMPT), Call(_PROMPT, messages=chat), Call(odd), Call(""))
            return [await client.call(each) for each in calls]
        finally:
            await client.close()

    for result in asyncio.run(call()):
        if not isinstance(result, Answered | Failure):
            yield f"{type(result).__name__} is returned"
        elif isinstance(result, Failure) and (result.kind not in KINDS or not result.reason):
            yield f"a failure needs a kind ({', '.join(KINDS)}) and a reason: {result.kind!r}, {result.reason!r}"


def _cancelled(trial: _TriedKind) -> Iterator[str]:
    """A call that is cancelled, as at a timeout, does not spoil the next ones."""

    async def call() -> list[Answered | Failure]:
        client = trial.client()
        await client.open()
        try:
            for pause in (0.0, 0.001, 0.01):
                task = asyncio.create_task(client.call(Call(f"{_PROMPT} cancelled")))
                await asyncio.sleep(pause)
                task.cancel()
                await asyncio.wait([task], timeout=_PATIENCE)
            return [await client.call(Call(f"{_PROMPT} {number}")) for number in range(2)]
        finally:
            await client.close()

    for number, result in enumerate(asyncio.run(call())):
        if isinstance(result, Failure):
            yield f"the next call failed: {result.kind}: {result.reason}"
        elif trial.says is not None and result.text != trial.says(f"{_PROMPT} {number}"):
            yield f"the next call got {result.text[:80]!r}, which is the answer to another"


def _away(trial: _TriedKind) -> Iterator[str]:
    """A server that is not there is a failure that says so, at once: no exception, and no fault of the model."""
    if trial.away is None:
        return

    async def call() -> tuple[Answered | Failure, float]:
        client = trial.client(trial.away)
        try:
            await client.open()
            began = time.monotonic()
            return await client.call(Call(_PROMPT)), time.monotonic() - began
        finally:
            await client.close()

    result, took = asyncio.run(call())
    if isinstance(result, Answered):
        yield "it answered"
        return
    if result.kind != "server" or not result.down or result.connected:
        yield f"wanted a failure with kind 'server', down, and not connected: {result.kind!r}, {result.reason}"
    if took > _SOON:
        yield f"it took {took:.1f} s"


PROPERTIES: Mapping[str, Callable[[_TriedKind], Iterator[str]]] = {
    "kind": _its_kind,
    "refusals": _refusals,
    "written again": _written_again,
    "identity": _identity,
    "address": _address,
    "parameters": _parameters,
    "closing": _closing,
    "calls": _calls,
    "bare calls": _bare_calls,
    "cancelled": _cancelled,
    "away": _away,
}


def target_violations(
    model: type[Target],
    entry: Mapping[str, Any],
    *,
    says: Callable[[str], str] | None = None,
    away: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> list[tuple[str, str]]:
    """Test every property of a kind; returns (property, detail) of each violation.

    ``entry`` is a target of a targets file that can be called. ``says`` gives the text that its server answers to a
    prompt; ``away`` is an entry whose server is not there. ``environment`` has what the entry names, such as the
    variable of `api_key_env`. ``folder`` holds the files that the entry names.
    """
    with TemporaryDirectory() as empty:
        trial = _TriedKind(
            model, dict(entry), None if away is None else dict(away), says, dict(environment or {}),
            folder or Path(empty),
        )  # fmt: skip
        return [(name, detail) for name, test in PROPERTIES.items() for detail in _details(test, trial)]


def _details(test: Callable[[_TriedKind], Iterator[str]], trial: _TriedKind) -> Iterator[str]:
    try:
        yield from test(trial)
    except Exception as error:  # any exception of a package is a finding; go on with the other properties
        yield error_with_line(error)


def check_target(
    model: type[Target],
    entry: Mapping[str, Any],
    *,
    says: Callable[[str], str] | None = None,
    away: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> None:
    """`target_violations`, as an assertion. Raises TargetConformanceError that lists the violations."""
    found = target_violations(model, entry, says=says, away=away, environment=environment, folder=folder)
    if found:
        raise TargetConformanceError(str(entry.get("kind", model.__name__)), found)
