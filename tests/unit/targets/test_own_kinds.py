"""Kinds of targets that packages bring: found by entry point, and held to the contract by the conformance suite."""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ConfigDict, Field

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.model.canonical import Json
from evalq.targets import Answered, Call, Client, Failure, ParameterTarget, Target, TargetConformanceError, check_target
from evalq.workers.targets import load_targets
from evalq.workers.targets.config import OWN_KINDS, kind_names, kind_of
from evalq.workers.targets.conformance import target_violations
from evalq.workers.targets.providers.openai import OpenAiTarget
from tests.agents.providers import Says, running_provider
from tests.agents.server import running_agent
from tests.unit.targets.test_providers import AWS, BOTH, KEY, entry


class EchoTarget(ParameterTarget):
    """Says what it is asked, with a sign behind it."""

    kind: Literal["echo"]
    sign: str = Field(default="!", description="The sign")

    def address(self) -> str:
        """Nowhere."""
        return f"echo {self.sign}"

    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """How it is called."""
        return EchoClient(self.sign)


class EchoClient:
    """Its calls."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    async def call(self, call: Call) -> Answered | Failure:
        """Says it again."""
        await asyncio.sleep(0.002)
        return Answered(text=call.prompt + self.sign, latency_seconds=0.002, finish_reason="stop")


def _says(prompt: str) -> str:
    return prompt + "!"


ECHO = {"kind": "echo"}


def test_a_kind_that_keeps_the_contract_passes() -> None:
    assert target_violations(EchoTarget, ECHO, says=_says) == []
    check_target(EchoTarget, ECHO)


class _Raising(EchoClient):
    async def call(self, call: Call) -> Answered | Failure:
        if "{x}" in call.prompt:
            raise KeyError(call.prompt)
        return await super().call(call)


class _Mixed(EchoClient):
    """One field for all calls: those at once get each other's answer."""

    last = ""

    async def call(self, call: Call) -> Answered | Failure:
        self.last = call.prompt
        await asyncio.sleep(0.002)
        return Answered(text=self.last + self.sign, latency_seconds=0.001)


class _OneLoop(EchoClient):
    """A lock of the loop in which it is first used, kept for ever."""

    lock: ClassVar[dict[str, asyncio.AbstractEventLoop]] = {}

    async def call(self, call: Call) -> Answered | Failure:
        if self.lock.setdefault("loop", asyncio.get_running_loop()) is not asyncio.get_running_loop():
            raise RuntimeError("another loop")
        return await super().call(call)


class _Spoiled(EchoClient):
    """A call that is cancelled leaves a lock behind."""

    busy = False

    async def call(self, call: Call) -> Answered | Failure:
        if self.busy:
            return Failure(kind="server", reason="busy")
        self.busy = True
        result = await super().call(call)
        self.busy = False
        return result


class _Liar(EchoClient):
    async def call(self, call: Call) -> Answered | Failure:
        return Answered(
            text=call.prompt + self.sign,
            latency_seconds=99.0,
            prompt_tokens=1,
            cached_tokens=2,
            finish_reason="end_turn",
        )


class _Nameless(EchoClient):
    async def call(self, call: Call) -> Answered | Failure:
        return Failure(kind="server", reason="")


class _ClosedOnce(EchoClient):
    closed = False

    async def close(self) -> None:
        assert not self.closed
        self.closed = True


def _with(client: type[EchoClient]) -> type[EchoTarget]:
    class Made(EchoTarget):
        """A kind."""

        def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
            return client(self.sign)

    return Made


class _Loose(EchoTarget):
    """A kind that takes any key."""

    model_config = ConfigDict(extra="ignore")


class _Telling(EchoTarget):
    """A kind whose address has its secret."""

    def secrets(self) -> Iterator[str]:
        yield "echo"


class _Deaf(EchoTarget):
    """A kind that forgets what callers choose."""

    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        return {}


class _Random(EchoTarget):
    """A kind with a field that says nothing of itself."""

    more: int = 0


@pytest.mark.parametrize(
    ("model", "broken"),
    [
        (_with(_Raising), "bare calls"),
        (_with(_Mixed), "calls"),
        (_with(_OneLoop), "calls"),
        (_with(_Spoiled), "cancelled"),
        (_with(_Liar), "calls"),
        (_with(_Nameless), "bare calls"),
        (_with(_ClosedOnce), "closing"),
        (_Loose, "refusals"),
        (_Telling, "address"),
        (_Deaf, "parameters"),
        (_Random, "kind"),
    ],
)
def test_each_broken_promise_is_caught(model: type[EchoTarget], broken: str) -> None:
    """By the property that states it."""
    _OneLoop.lock.clear()
    found = target_violations(model, ECHO, says=_says)
    assert broken in [name for name, _ in found], found
    _OneLoop.lock.clear()
    with pytest.raises(TargetConformanceError, match="echo breaks the contract of targets:"):
        check_target(model, ECHO, says=_says)


def test_a_server_that_is_away_is_no_exception() -> None:
    """The property is tried with an entry of the author's."""
    assert [name for name, _ in target_violations(EchoTarget, ECHO, away=ECHO)] == ["away"]


def _own(kind: str) -> type[Target]:
    model = kind_of(kind)
    assert model is not None
    return model


@pytest.mark.parametrize(("kind", "stream"), BOTH)
def test_evalqs_own_kinds_of_models_conform(kind: str, stream: bool) -> None:
    """Against a server of their API."""
    with running_provider() as (server, url):
        server.says = Says(cached=4, reasoning=3)
        more = {"stream": True} if stream else {}
        check_target(
            _own(kind),
            entry(kind, url, **more),
            says=lambda prompt: str(Says().text),
            away=entry(kind, "http://127.0.0.1:1", **more),
            environment={"KEY": KEY, **AWS},
        )


def test_evalqs_other_kinds_conform(tmp_path: Path) -> None:
    """A service over HTTP, and a program."""
    with running_agent() as (agent, url):
        agent.answer = _says
        body = {"messages": "{messages}"}
        http = {"kind": "http", "url": f"{url}/chat/completions", "body": body, "answer": "choices[0].message.content"}
        violations = target_violations(_own("http"), http, says=_says, away={**http, "url": "http://127.0.0.1:1/"})
    # A place in the body is needed for each parameter: those that the suite makes up have none.
    assert {name for name, _ in violations} <= {"parameters"}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What packages register in this test."""
    points: list[EntryPoint] = []
    module = ModuleType("team_targets")
    module.__dict__.update(echo=EchoTarget, no_class=_says, none=EchoClient)
    monkeypatch.setitem(sys.modules, "team_targets", module)
    real = plugins.plug_ins

    def with_points(group: str) -> list[EntryPoint]:
        return [*real(group), *(point for point in points if point.group == group)]

    monkeypatch.setattr("evalq.workers.targets.config.plug_ins", with_points)
    kind_of.cache_clear()
    yield points
    kind_of.cache_clear()


def _point(name: str, value: str) -> EntryPoint:
    return importlib.metadata.EntryPoint(name, value, "evalq.targets")


def _load(folder: Path, text: str) -> Any:
    (folder / "targets.yaml").write_text(f"targets: {{t: {text}}}")
    return load_targets(folder / "targets.yaml")["t"].target


def test_a_targets_file_may_name_a_kind_of_a_package(registered: list[EntryPoint], tmp_path: Path) -> None:
    """It is imported only then, and is one of those that an error lists."""
    registered += [_point("echo", "team_targets:echo"), _point("broken", "team_nowhere:x")]
    assert {"echo", "broken", *OWN_KINDS} == set(kind_names())
    target = _load(tmp_path, "{kind: echo, sign: '?'}")
    assert isinstance(target, EchoTarget)
    with pytest.raises(ConfigError, match=r"targets\.t\.kind: must be one of anthropic, .*, broken, command, echo, "):
        _load(tmp_path, "{kind: soap}")
    with pytest.raises(ConfigError, match=r"sing: unknown key"):
        _load(tmp_path, "{kind: echo, sing: x}")


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([("echo", "team_nowhere:x")], "the kind of target 'echo' (team_nowhere:x) cannot be loaded"),
        ([("echo", "team_targets:no_class")], "is no subclass of evalq.targets.Target"),
        ([("echo", "team_targets:none")], "is no subclass of evalq.targets.Target"),
        ([("ech", "team_targets:echo")], "needs the field `kind: Literal['ech']`"),
        ([("echo", "team_targets:echo"), ("echo", "team_targets:none")], "several packages register a kind of target"),
        ([("openai", "team_targets:echo")], None),
    ],
)
def test_a_kind_that_cannot_be_used_is_named(
    points: list[tuple[str, str]], said: str | None, registered: list[EntryPoint], tmp_path: Path
) -> None:
    """With its package; a name of evalq's own stays evalq's."""
    registered += [_point(*point) for point in points]
    if said is None:
        assert kind_of("openai") is OpenAiTarget
        return
    with pytest.raises(ConfigError) as raised:
        _load(tmp_path, f"{{kind: {points[0][0]}}}")
    assert said in str(raised.value)
