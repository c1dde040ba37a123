"""The base of all kinds of targets: the common keys of an entry in the targets file, and the client's protocol."""

from __future__ import annotations

import glob
import hashlib
import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.processes.environment import is_secret
from evalq.workers.targets.answers import Answered, Call, Failure, FailureKind
from evalq.workers.targets.price import Price
from evalq.workers.targets.variable import Choices, choices_of, labels

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Parameter = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class Client(Protocol):
    """Makes the calls of one target."""

    async def open(self) -> None:
        """Prepare for calls. Raises ConfigError if that is impossible, OSError if it fails now."""

    async def call(self, call: Call) -> Answered | Failure:
        """Make one call, without retries."""

    async def close(self) -> None:
        """Release all resources; works in any state, also after a failed `open`."""


class RetryRule(Params):
    """How often to retry a call after one kind of failure; the wait before the n-th retry grows with factor**n."""

    times: int = Field(default=0, ge=0, le=100, description="How often such a call is tried again")
    wait_seconds: float = Field(default=1.0, ge=0, le=3600, description="Wait before it; Retry-After wins")
    factor: float = Field(default=2.0, ge=1, le=10, description="What each further wait is multiplied by")
    longest_seconds: float = Field(
        default=600.0, gt=0, le=86_400, description="A server that asks for a longer wait is not tried again"
    )


class CaseBudget(Params):
    """A case that has no answer ends once a part of it is spent; 0 is no bound. Each repeat has a budget of its own."""

    tries: int = Field(
        default=0, ge=0, le=10_000, description="Most tries that bring no answer, of any kind of failure"
    )
    seconds: float = Field(default=0.0, ge=0, description="No further try after so many seconds since the first")
    cost: float = Field(
        default=0.0, ge=0, description="No further try once its tries cost so much, in the price's currency"
    )


DEFAULT_RETRIES: dict[FailureKind, RetryRule] = {
    "rate_limit": RetryRule(times=8, wait_seconds=1.0, factor=1.5),
    "timeout": RetryRule(times=1, wait_seconds=1.0),
    "server": RetryRule(times=4, wait_seconds=0.5),
    # Once, in a process with no other call: if the call kills that one as well, it is the cause.
    "crashed": RetryRule(times=1, wait_seconds=0.1),
}
"""Other kinds are not retried, because a retry would not help: a spent quota, a wrong key, a refused request."""


class Target(Params):
    """The keys that all kinds share. `evalq.workers.targets.config` lists the kinds, each a module beside this one."""

    takes_envelopes: ClassVar[bool] = False
    """Whether ``output: envelope`` says what its answers are."""
    times_itself: ClassVar[bool] = False
    """Whether the client itself applies ``timeout_seconds``."""

    output: Literal["json", "text", "envelope"] | None = Field(
        default=None,
        description="What an answer must be: JSON (by itself or fenced in text), any text, or (http, command) an "
        "envelope: {output, messages, tool_calls, usage, cost, served, ...}. By default, what the evaluator takes: "
        "checks takes text and finds JSON in it, vs and judges need JSON",
    )
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600, description="Longest time of a call")
    max_concurrency: int = Field(default=0, ge=0, le=100_000, description="Most calls at once, fleet-wide; 0: no limit")
    requests_per_minute: float = Field(default=0.0, ge=0, description="Most calls a minute, fleet-wide; 0: found out")
    tokens_per_minute: float = Field(default=0.0, ge=0, description="Most tokens a minute, fleet-wide; 0: no limit")
    tokens_per_call: int = Field(default=1000, ge=0, description="Tokens assumed for a call until some are known")
    max_bytes: int = Field(default=8 << 20, ge=1024, le=8 << 20, description="The longest reply that is read")
    api_key_env: Name | None = Field(default=None, description="The environment variable that holds the key")
    price: Price | None = Field(default=None, description="What tokens cost")
    retries: dict[FailureKind, RetryRule] = Field(
        default_factory=dict, description="Retries by kind of failure, over the defaults below"
    )
    case_budget: CaseBudget = Field(
        default=CaseBudget(), description="What one case may take until it is given up: {tries, seconds, cost}, below"
    )
    identity: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Any text that is part of the digest of the settings, such as a release or a host: change it when "
        "the agent behind the same settings is another one. Host and port of an address are no part of the digest",
    )
    user: str | None = Field(
        default=None,
        min_length=1,
        description="Another target of this file, which simulates the user in cases with `user`: it has the persona "
        "and the goal of the case, and says what the user says",
    )
    variable: dict[_Parameter, Any] = Field(
        default_factory=dict,
        description="Parameters that callers may set: {parameter: list of values, {name: value} or {min, max}}",
    )

    @field_validator("variable")
    @classmethod
    def _declared(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, given in value.items():
            try:
                choices_of(given)
            except (ValueError, TypeError) as error:
                raise PydanticCustomError("choices", "{name}: {why}", {"name": name, "why": str(error)}) from None
        return value

    @model_validator(mode="after")
    def _budget_counts(self) -> Target:
        if self.case_budget.cost and self.price is None:
            raise PydanticCustomError("budget", "case_budget: a cost needs a price, which this target does not have")
        return self

    @model_validator(mode="after")
    def _envelope_fits(self) -> Target:
        if self.output == "envelope" and not self.takes_envelopes:
            raise PydanticCustomError(
                "envelope",
                "output: envelope is for the kinds command and http; a function returns an evalq.Answer, and of a "
                "provider's reply all is read that it has",
            )
        return self

    @property
    def choices(self) -> dict[str, Choices]:
        """The possible values of each variable parameter."""
        return {name: choices_of(given) for name, given in self.variable.items()}

    def rule(self, kind: FailureKind) -> RetryRule:
        """The retry policy for failures of ``kind``."""
        return self.retries.get(kind) or DEFAULT_RETRIES.get(kind) or RetryRule()

    @abstractmethod
    def address(self) -> str:
        """The address of its calls as text for people, without secrets."""

    def secrets(self) -> Iterator[str]:
        """The secrets in its entry, which evalq cuts out of answers."""
        yield from ()

    def granted(self) -> tuple[str, ...]:
        """The environment variables that its program gets in addition to its key."""
        return ()

    def files(self) -> Mapping[str, str | None]:
        """{key: path} of its files, in the targets file's folder or below; {agent} in a path means any agent."""
        return {}

    @abstractmethod
    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """{key: new content} of the keys of its entry, for these {parameter: value}."""

    @abstractmethod
    def value_of(self, parameter: str) -> Json:
        """The default value of a parameter."""

    @abstractmethod
    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """A client; ``folder`` is the targets file's, ``key`` the value of ``api_key_env``. Raises ConfigError."""


class ParameterTarget(Target):
    """A target that gets its parameters together with the question."""

    parameters: dict[_Parameter, Any] = Field(default_factory=dict, description="Further values that it gets, by name")

    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """``parameters`` with these values."""
        return {"parameters": {**self.parameters, **values}}

    def value_of(self, parameter: str) -> Json:
        """The value in ``parameters``; None if it is not there."""
        return self.parameters.get(parameter)


class RequestTarget(Target):
    """A target with a request of a known form.

    Variable parameters can be those of its entry's keys that are in ``keys``, and all members of the request that are
    not ``fixed``.
    """

    keys: ClassVar[tuple[str, ...]] = ()
    fixed: ClassVar[tuple[str, ...]] = ()

    options: dict[str, Any] = Field(
        default_factory=dict, description="Further members of the request: temperature, max_tokens, dimensions, ..."
    )

    @model_validator(mode="after")
    def _choosable(self) -> RequestTarget:
        for name in self.variable:
            if name not in self.keys and (name in type(self).model_fields or name in self.fixed):
                raise PydanticCustomError("choice", "variable: callers cannot override {name}", {"name": name})
        return self

    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """Its own ``keys``, and all other parameters as members of the request (``options``)."""
        keys = {name: value for name, value in values.items() if name in self.keys}
        return {**keys, "options": {**self.options, **{name: values[name] for name in values.keys() - keys.keys()}}}

    def value_of(self, parameter: str) -> Json:
        """The value of its key, or in ``options``; None if it is in neither."""
        return getattr(self, parameter) if parameter in self.keys else self.options.get(parameter)


class NamedTarget(msgspec.Struct, frozen=True):
    """A target with its name in the targets file; its prompts and schemas must be in ``folder``.

    If parameters were set, ``of`` is the target in the file and ``chosen`` has the labels; both share one ``pool``.
    ``user`` is the target that simulates its users, if its entry names one.
    """

    name: str
    target: Target
    folder: Path
    of: NamedTarget | None = None
    chosen: dict[str, str] = {}
    keys: tuple[str, ...] = ()
    """The variables of all keys that the targets file names; evalq cuts their values out of answers."""
    user: NamedTarget | None = None

    @property
    def pool(self) -> str:
        """The name under which the fleet paces its calls, without parameters, because they all go to one server."""
        return self.of.name if self.of is not None else self.name


def usable_name(name: str) -> bool:
    """Whether ``name`` is valid for a target or an agent; it becomes part of keys and file names."""
    return 0 < len(name) <= 64 and name[0] not in ".-" and all(sign.isalnum() or sign in "._-" for sign in name)


# -- the files that an entry names; a path may have one file per agent --------------------------------


def files_of(folder: Path, pattern: str) -> Iterator[Path]:
    """The files in ``folder`` that ``pattern``, a path of the targets file, can mean for any agent, sorted."""
    below = os.path.relpath(folder / pattern, folder)
    found = folder.glob("*".join(glob.escape(part) for part in below.split("{agent}")))
    # The input names the agent, so it must not lead to other files.
    return (path for path in sorted(found) if allows(Writer.CASES_FILE, Thing.PATH, path, (folder,)) and _is_file(path))


def resolved(path: Path) -> Path:
    """``path`` with links resolved. A link to itself stays, and fails when it is read."""
    # For such a link, Path.resolve raises RuntimeError before Python 3.13.
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder whose names can be read, but not its files
        return False


# -- digests of the settings on which answers depend: they distinguish outputs of different settings --

# Keys, prices, limits and addresses do not influence answers, and differ between hosts. In the digest, each change of
# them would invalidate every cache: a test server has another port each time. Where another host is another agent, the
# entry's `identity` says so.
_NO_PART_OF_ANSWERS = (
    "base_url",
    *("headers", "api_key_header", "api_key_env", "price", "retries", "timeout_seconds", "max_bytes", "max_megabytes"),
    "case_budget",
    *("stream", "cache", "profile", "entra", "token_command"),
    *("variable", "max_concurrency", "requests_per_minute", "tokens_per_minute", "tokens_per_call"),
)
_SHOWN = 16
_LONGEST_NAME = 100
"""Characters of a digest."""


def config_digest(named: NamedTarget) -> str:
    """The digest of everything that answers depend on: the settings without keys and limits, and the named files.

    For a target with variable parameters, it combines `core_digest` with the digests of the parameters' values.
    """
    if named.of is None:
        return _digest(named)
    choices = named.of.target.choices
    values = {name: choices[name].value(label) for name, label in named.chosen.items()}
    chosen = {name: _value_of(named.of, name, value) for name, value in values.items()}
    return chosen_digest(core_digest(named.of), {**given_digests(named.of), **chosen})


def chosen_digest(core: str, values: Mapping[str, str]) -> str:
    """The digest of a target with variable parameters, from its core digest and {parameter: digest of its value}."""
    return hashlib.sha256(canonical_json([core, dict(values)])).hexdigest()[:_SHOWN]


def core_digest(named: NamedTarget) -> str:
    """The digest of the settings without the variable parameters; "" for a target without any."""
    return _digest(named, named.target.variable) if named.target.variable else ""


def given_digests(named: NamedTarget) -> dict[str, str]:
    """{parameter: digest of its default value}."""
    target = named.target
    return {name: _value_of(named, name, target.value_of(name)) for name in target.variable}


_NAMING = frozenset(
    ("kind", "model", "api_version", "output", "region", "location", "reasoning_effort", "effort", "service_tier")
)
"""Settings whose text is no secret and no prompt."""


def shown_settings(named: NamedTarget) -> dict[str, str]:
    """{key path: its value} of each setting that answers depend on, to name the settings that changed.

    Numbers and names of models are shown; prompts, files and all that may be secret only as digests.
    """
    target = named.target
    found: dict[str, str] = {}
    for key, value in target.model_dump(mode="json").items():
        if key in _NO_PART_OF_ANSWERS:
            continue
        if key == "user":
            value = named.user and config_digest(named.user)
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        found |= {path: _shown_value(path, each) for path, each in inner.items() if each is not None}
    for key, pattern in target.files().items():
        if pattern:
            found[key] = f"digest {hashlib.sha256(b''.join(_contents(named, pattern))).hexdigest()[:_SHOWN]}"
    return found


def _shown_value(path: str, value: Json) -> str:
    key = path.rpartition(".")[2]
    names = isinstance(value, str) and key in _NAMING and len(value) <= _LONGEST_NAME
    counts = isinstance(value, int | float) and not is_secret(key.replace("tokens", ""))
    return canonical_json(value).decode() if names or counts else f"digest {value_digest(value)}"


def listed_digests(named: NamedTarget) -> dict[str, dict[str, str]]:
    """{parameter: {label of a value: its digest}} of the parameters with listed values."""
    return {
        name: {label: _value_of(named, name, value) for label, value in choices.values.items()}
        for name, choices in named.target.choices.items()
        if choices.values
    }


def value_digest(value: Json) -> str:
    """The digest of a value that is not a file name."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:_SHOWN]


def _value_of(named: NamedTarget, parameter: str, value: Json) -> str:
    """The digest of a value; if it names a file, the digest of the file's content."""
    if parameter not in named.target.files() or not isinstance(value, str):
        return value_digest(value)
    return hashlib.sha256(b"".join(_contents(named, value))).hexdigest()[:_SHOWN]


def _digest(named: NamedTarget, but: Collection[str] = ()) -> str:
    """The digest of all settings except the parameters in ``but``."""
    target = named.target
    settings = target.model_dump(mode="json")
    if target.output is None:
        del settings["output"]  # the evaluator decides on the form of an answer then
    if target.identity is None:
        del settings["identity"]
    # Its settings and not its name: what it is called changes no answer.
    settings["user"] = named.user and config_digest(named.user)
    if named.user is None:
        del settings["user"]
    if urls := settings.get("url"):
        paths = sorted({_without_host(url) for url in ([urls] if isinstance(urls, str) else urls)})
        settings["url"] = paths[0] if len(paths) == 1 else paths
    for name in (*_NO_PART_OF_ANSWERS, *but):
        settings.pop(name, None)
    for name in ("options", "parameters"):
        if name in settings:
            settings[name] = {key: value for key, value in settings[name].items() if key not in but}
    if not settings.get("parameters"):
        settings.pop("parameters", None)  # keep the digest of outputs recorded before `parameters` existed
    whole = hashlib.sha256(canonical_json(settings))
    for key, pattern in target.files().items():
        for content in _contents(named, pattern) if pattern and key not in but else ():
            whole.update(content)
    return whole.hexdigest()[:_SHOWN]


def _without_host(url: str) -> str:
    """What of a URL says which agent answers: path and parameters, without those that are secrets."""
    parts = urlsplit(url)
    given = sorted((name, value) for name, value in parse_qsl(parts.query, True) if not is_secret(name))
    return f"{parts.path.rstrip('/')}?{urlencode(given)}" if given else parts.path.rstrip("/")


def files_seen(named: NamedTarget) -> tuple[object, ...]:
    """Path, times and size of all files in the digests, to detect changes without reading the files."""
    target = named.target
    chosen = (value for name, _, value in labels(target.choices) if name in target.files() and isinstance(value, str))
    patterns = {*filter(None, target.files().values()), *chosen}
    return tuple(_seen(path) for pattern in sorted(patterns) for path in files_of(named.folder, pattern))


def _seen(path: Path) -> object:
    try:
        stat = path.stat()
    except OSError:  # removed since it was listed
        return None
    return str(path), stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size


def _contents(named: NamedTarget, pattern: str) -> Iterator[bytes]:
    """The name and the content's digest of each file that ``pattern`` can mean, for all agents.

    If the pattern has a folder per agent, the name begins with that folder, which identifies the agent.
    """
    parts = Path(os.path.relpath(named.folder / pattern, named.folder)).parts
    agents = next((number for number, part in enumerate(parts) if "{agent}" in part), len(parts) - 1)
    for path in files_of(named.folder, pattern):
        name = str(Path(*path.relative_to(named.folder).parts[agents:]))
        try:
            content = hashlib.sha256(path.read_bytes()).digest()
        except FileNotFoundError:  # removed since it was listed
            continue
        except OSError:  # a call of this agent reports it; the other agents stay usable
            content = b""
        # As bytes: the folder may have files whose names are not UTF-8.
        yield os.fsencode(name) + b"\0" + content
