"""The targets file: which agents a worker can call, how, and how often. Read by workers; producers know names only.

Nothing in it is a secret but header values and what a URL may hold; keys of services are named by the environment
variable that has them. No error shows a value of the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, Field, field_validator

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import load_mapping, validate
from evalq.evalcore.errors import ConfigError
from evalq.workers.targets.answers import FailureKind
from evalq.workers.targets.template import parse_path

__all__ = [
    "MODELS",
    "CommandTarget",
    "HttpTarget",
    "NamedTarget",
    "OpenAiTarget",
    "Price",
    "PythonTarget",
    "RetryRule",
    "Target",
    "load_targets",
    "usable_name",
]

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


def _with_host(url: str) -> str:
    parts = urlsplit(url)  # raises ValueError for brackets that hold no address
    if not parts.hostname or parts.port == 0:  # reading the port raises ValueError for one that is none
        raise ValueError("not an address: it needs a host, and a port from 1 to 65535 or none")
    return url


_Url = Annotated[str, Field(pattern=r"^https?://[^\s]+$"), AfterValidator(_with_host)]
_HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
_Headers = dict[_HeaderName, Annotated[str, Field(pattern=r"^[ -~]*$")]]
_Argument = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class RetryRule(Params):
    """How often a failure of one kind is tried again, and the wait before; the n-th wait is factor**n times as long."""

    times: int = Field(default=0, ge=0, le=100, description="How often such a call is tried again")
    wait_seconds: float = Field(default=1.0, ge=0, le=3600, description="Wait before it; Retry-After wins")
    factor: float = Field(default=2.0, ge=1, le=10, description="What each further wait is multiplied by")
    longest_seconds: float = Field(
        default=600.0, gt=0, le=86_400, description="A server that asks for a longer wait is not tried again"
    )


DEFAULT_RETRIES: dict[FailureKind, RetryRule] = {
    "rate_limit": RetryRule(times=8, wait_seconds=1.0, factor=1.5),
    "timeout": RetryRule(times=1, wait_seconds=1.0),
    "server": RetryRule(times=4, wait_seconds=0.5),
    # Once, in a process of its own: a call that kills that one as well is itself the cause.
    "crashed": RetryRule(times=1, wait_seconds=0.1),
}
"""What is not here is not tried again: a spent quota, a wrong key and a refusal stay what they are."""


class Price(Params):
    """What tokens cost, in any currency."""

    prompt_per_million: float = Field(default=0.0, ge=0, description="Price of a million prompt tokens")
    completion_per_million: float = Field(default=0.0, ge=0, description="Price of a million completion tokens")

    def cost(self, prompt: float, completion: float) -> float:
        """What so many tokens cost."""
        return (prompt * self.prompt_per_million + completion * self.completion_per_million) / 1e6


class Target(Params):
    """What every kind of target has."""

    output: Literal["json", "text"] = Field(
        default="json", description="What an answer must be: JSON (by itself or fenced in text), or any text"
    )
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600, description="Longest time of a call")
    max_concurrency: int = Field(default=0, ge=0, le=100_000, description="Most calls at once, fleet-wide; 0: no limit")
    requests_per_minute: float = Field(default=0.0, ge=0, description="Most calls a minute, fleet-wide; 0: found out")
    tokens_per_minute: float = Field(default=0.0, ge=0, description="Most tokens a minute, fleet-wide; 0: no limit")
    tokens_per_call: int = Field(default=1000, ge=0, description="Tokens a call is taken for until some are known")
    max_bytes: int = Field(default=8 << 20, ge=1024, le=8 << 20, description="The longest reply that is read")
    api_key_env: _Name | None = Field(default=None, description="The environment variable that holds the key")
    price: Price | None = Field(default=None, description="What tokens cost")
    retries: dict[FailureKind, RetryRule] = Field(
        default_factory=dict, description="Retries by kind of failure, over the defaults below"
    )

    def rule(self, kind: FailureKind) -> RetryRule:
        """The retry policy for failures of ``kind``."""
        return self.retries.get(kind) or DEFAULT_RETRIES.get(kind) or RetryRule()


def _path(value: str) -> str:
    parse_path(value)
    return value


class HttpTarget(Target):
    """Any HTTP endpoint: a JSON template in, a JSON path out."""

    kind: Literal["http"]
    url: _Url = Field(description="Where calls are posted")
    headers: _Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")
    api_key_header: _HeaderName = Field(
        default="Authorization", description="Header of the key; in Authorization, a bearer"
    )
    body: Any = Field(description="The JSON to send; {prompt}, {agent}, {case} and {repeat} stand for the call's")
    answer: str = Field(default="", description="Path of the answer in the reply; empty: the whole reply")
    finish_reason: str | None = Field(default=None, description="Path of the reason why the answer ended")
    prompt_tokens: str | None = Field(default=None, description="Path of the number of prompt tokens")
    completion_tokens: str | None = Field(default=None, description="Path of the number of completion tokens")

    @field_validator("answer", "finish_reason", "prompt_tokens", "completion_tokens")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        return value if value is None else _path(value)


class OpenAiTarget(Target):
    """Any endpoint that speaks chat completions."""

    kind: Literal["openai"]
    base_url: Annotated[_Url, Field(pattern=r"^[^?#]+$")] = Field(
        description="The address before /chat/completions, such as http://127.0.0.1:8000/v1"
    )
    model: str = Field(min_length=1, description="The model's name")
    headers: _Headers = Field(default_factory=dict, description="Further headers (their values are never shown)")
    system_prompt: str | None = Field(
        default=None, description="A file beside or below the targets file; {agent} stands for the call's agent"
    )
    json_mode: bool = Field(default=False, description="Ask for a JSON object by response_format")
    json_schema: str | None = Field(default=None, description="A JSON schema file to ask for, beside or below this one")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Further members of the request: temperature, max_tokens, ..."
    )


class CommandTarget(Target):
    """A program: {prompt, agent, case, repeat} as JSON on its stdin, the answer on its stdout."""

    kind: Literal["command"]
    argv: tuple[_Argument, ...] = Field(min_length=1, description="The program and its arguments; no shell reads them")
    env: tuple[_Name, ...] = Field(
        default=(), description="Variables it gets beside PATH, HOME, LANG, TMPDIR and the key's; no other"
    )
    max_megabytes: int = Field(default=2048, ge=16, description="Most address space it may take")


class PythonTarget(Target):
    """A function, sync or async, of a dict {prompt, agent, case, repeat}; it returns text or plain data."""

    kind: Literal["python"]
    function: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="module:function; the module is in the targets file's folder, or installed",
    )
    max_megabytes: int = Field(default=4096, ge=64, description="Most memory its process may take")


MODELS: dict[str, type[Target]] = {
    "http": HttpTarget,
    "openai": OpenAiTarget,
    "command": CommandTarget,
    "python": PythonTarget,
}
"""The kinds of targets."""


class NamedTarget(msgspec.Struct, frozen=True):
    """A target by the name its file gives it; ``folder`` is the only one its prompts and schemas may be in."""

    name: str
    target: Target
    folder: Path


def load_targets(path: str | Path) -> dict[str, NamedTarget]:
    """The targets of a file, by name, in its order. Raises ConfigError that names the file and every wrong key."""
    data = load_mapping(path)
    unknown = sorted(set(data) - {"targets"})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]}: unknown key (known here: targets)")
    entries = data.get("targets")
    if not isinstance(entries, dict) or not entries:
        raise ConfigError(f"{path}: targets: must be a mapping of names to targets")
    folder = Path(path).resolve().parent
    return {name: NamedTarget(name, _target(name, entry, path, folder), folder) for name, entry in entries.items()}


def _target(name: object, entry: object, path: str | Path, folder: Path) -> Target:
    where = f"{path}: targets.{name}"
    if not isinstance(name, str) or not usable_name(name):
        raise ConfigError(f"{where}: a name is up to 64 letters, digits, '.', '_' and '-'")
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: must be a mapping with a kind ({', '.join(MODELS)})")
    kind = entry.get("kind")
    model = MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise ConfigError(f"{where}.kind: must be one of {', '.join(MODELS)}")
    # No values in messages: headers and URLs may hold secrets.
    target = validate(model, entry, where, show_values=False)
    if isinstance(target, OpenAiTarget):
        for key in ("system_prompt", "json_schema"):
            file = getattr(target, key)
            if file is not None and not _below(file.replace("{agent}", "agent"), folder):
                raise ConfigError(f"{where}.{key}: must be a file in the targets file's folder, or below it")
            if file is not None and "{agent}" not in file and not (folder / file).is_file():
                raise ConfigError(f"{where}.{key}: no such file in {folder}")
    return target


def usable_name(name: str) -> bool:
    """Whether ``name`` can be a target's or an agent's: it becomes part of keys and file names."""
    return 0 < len(name) <= 64 and name[0] not in ".-" and all(sign.isalnum() or sign in "._-" for sign in name)


def _below(file: str, folder: Path) -> bool:
    return (folder / file).resolve().is_relative_to(folder)
