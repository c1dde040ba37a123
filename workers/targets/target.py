"""What every kind of target has: the keys of its entry in the targets file, and what a caller needs of it."""

from __future__ import annotations

import glob
import hashlib
import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.model.canonical import Json, canonical_json
from evalq.evalcore.trust import Thing, Writer, allows
from evalq.workers.targets.answers import Answer, Call, Failure, FailureKind
from evalq.workers.targets.price import Price
from evalq.workers.targets.variable import Choices, choices_of, labels

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Parameter = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class Client(Protocol):
    """How calls of an open target are made."""

    async def open(self) -> None:
        """Get ready. Raises ConfigError where that cannot be, OSError where it cannot be now."""

    async def call(self, call: Call) -> Answer | Failure:
        """One call, once."""

    async def close(self) -> None:
        """Let go of all, whatever state it is in."""


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


class Target(Params):
    """What every kind of target has; each kind is a module beside this one, named in `evalq.workers.targets.config`."""

    times_itself: ClassVar[bool] = False
    """Whether ``timeout_seconds`` is kept where a call is made, and not by who waits for it."""

    output: Literal["json", "text"] | None = Field(
        default=None,
        description="What an answer must be: JSON (by itself or fenced in text), or any text. By default, what the "
        "evaluator takes: checks takes text and finds JSON in it, vs and judges need JSON",
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

    @property
    def choices(self) -> dict[str, Choices]:
        """What may be chosen for each parameter."""
        return {name: choices_of(given) for name, given in self.variable.items()}

    def rule(self, kind: FailureKind) -> RetryRule:
        """The retry policy for failures of ``kind``."""
        return self.retries.get(kind) or DEFAULT_RETRIES.get(kind) or RetryRule()

    @abstractmethod
    def address(self) -> str:
        """Where its calls go, for people, without anything that may be secret."""

    def secrets(self) -> Iterator[str]:
        """Texts of its entry that must not come back in an answer."""
        yield from ()

    def granted(self) -> tuple[str, ...]:
        """The variables of the environment that its program is given besides its key."""
        return ()

    def files(self) -> Mapping[str, str | None]:
        """{key: path} of its files, which lie beside or below the targets file; {agent} stands for any agent."""
        return {}

    @abstractmethod
    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """{key: what stands there} of the keys of its entry that these values of its parameters change."""

    @abstractmethod
    def value_of(self, parameter: str) -> Json:
        """What it takes where nothing is chosen."""

    @abstractmethod
    def client(self, folder: Path, key: str | None, environment: Mapping[str, str]) -> Client:
        """Calls of it; ``folder`` is the targets file's, ``key`` what ``api_key_env`` names. Raises ConfigError."""


class ParameterTarget(Target):
    """One that is given its parameters beside the question."""

    parameters: dict[_Parameter, Any] = Field(default_factory=dict, description="Further values that it gets, by name")

    def with_values(self, values: Mapping[str, Json]) -> Mapping[str, Json]:
        """Its parameters with these values, as a change of its settings."""
        return {"parameters": {**self.parameters, **values}}

    def value_of(self, parameter: str) -> Json:
        """As ``parameters`` has it; None where that has none."""
        return self.parameters.get(parameter)


class RequestTarget(Target):
    """One that is sent a request of a known form: its ``keys`` among those of its entry may be chosen, and all further
    members of the request but the ``fixed`` ones.
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
        """Keys of its own, and everything else as a member of the request."""
        keys = {name: value for name, value in values.items() if name in self.keys}
        return {**keys, "options": {**self.options, **{name: values[name] for name in values.keys() - keys.keys()}}}

    def value_of(self, parameter: str) -> Json:
        """As its key or ``options`` has it; None where these have none."""
        return getattr(self, parameter) if parameter in self.keys else self.options.get(parameter)


class NamedTarget(msgspec.Struct, frozen=True):
    """A target by the name its file gives it; ``folder`` is the only one its prompts and schemas may be in.

    One with choices knows the target ``of`` the file, and what was ``chosen`` of it; they share its ``pool``.
    """

    name: str
    target: Target
    folder: Path
    of: NamedTarget | None = None
    chosen: dict[str, str] = {}
    keys: tuple[str, ...] = ()
    """The variables of all keys that its file names: none of them is to stand in an answer."""

    @property
    def pool(self) -> str:
        """The name under which the fleet paces its calls: all choices go to one server."""
        return self.of.name if self.of is not None else self.name


def usable_name(name: str) -> bool:
    """Whether ``name`` can be a target's or an agent's: it becomes part of keys and file names."""
    return 0 < len(name) <= 64 and name[0] not in ".-" and all(sign.isalnum() or sign in "._-" for sign in name)


# -- the files that an entry names, each of which may stand for one of every agent --------------------


def files_of(folder: Path, pattern: str) -> Iterator[Path]:
    """The files in ``folder`` that a path of its targets file may stand for, whichever agent is called, in order."""
    below = os.path.relpath(folder / pattern, folder)
    found = folder.glob("*".join(glob.escape(part) for part in below.split("{agent}")))
    # Which agent it is an input says.
    return (path for path in sorted(found) if allows(Writer.CASES_FILE, Thing.PATH, path, (folder,)) and _is_file(path))


def resolved(path: Path) -> Path:
    """Where ``path`` leads; a link that leads to itself is a file that cannot be read."""
    # Of such a link Path.resolve raises RuntimeError before Python 3.13.
    return Path(os.path.realpath(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # in a folder that may be listed, and not entered
        return False


# -- digests of what answers depend on: they tell outputs of two settings apart -----------------------

# Keys, prices and limits differ between hosts, and change, without an answer becoming another: a digest with them in
# it would empty every cache.
_NO_PART_OF_ANSWERS = (
    *("headers", "api_key_header", "api_key_env", "price", "retries", "timeout_seconds", "max_bytes", "max_megabytes"),
    *("variable", "max_concurrency", "requests_per_minute", "tokens_per_minute", "tokens_per_call"),
)
_SHOWN = 16
"""Letters of a digest."""


def config_digest(named: NamedTarget) -> str:
    """What the answers depend on: the target's settings without keys and limits, and the files that it names.

    Of one with choices: of all that nobody may choose, and of what is chosen or given for the rest.
    """
    if named.of is None:
        return _digest(named)
    choices = named.of.target.choices
    values = {name: choices[name].value(label) for name, label in named.chosen.items()}
    chosen = {name: _value_of(named.of, name, value) for name, value in values.items()}
    return chosen_digest(core_digest(named.of), {**given_digests(named.of), **chosen})


def chosen_digest(core: str, values: Mapping[str, str]) -> str:
    """Of a target with choices, from the digests of what cannot be chosen and of each value."""
    return hashlib.sha256(canonical_json([core, dict(values)])).hexdigest()[:_SHOWN]


def core_digest(named: NamedTarget) -> str:
    """Of what nobody may choose of it; empty where all is as the file has it."""
    return _digest(named, named.target.variable) if named.target.variable else ""


def given_digests(named: NamedTarget) -> dict[str, str]:
    """{parameter: digest of what it takes where nothing is chosen}."""
    target = named.target
    return {name: _value_of(named, name, target.value_of(name)) for name in target.variable}


def setting_digests(named: NamedTarget) -> dict[str, str]:
    """{key path: digest} of each setting that answers depend on, so that what differs between two can be named."""
    target = named.target
    found: dict[str, str] = {}
    for key, value in target.model_dump(mode="json").items():
        if key in _NO_PART_OF_ANSWERS:
            continue
        inner = {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        found |= {path: value_digest(each) for path, each in inner.items() if each is not None}
    for key, pattern in target.files().items():
        if pattern:
            found[key] = hashlib.sha256(b"".join(_contents(named, pattern))).hexdigest()[:_SHOWN]
    return found


def listed_digests(named: NamedTarget) -> dict[str, dict[str, str]]:
    """{parameter: {name of a value: its digest}} of those that list their values."""
    return {
        name: {label: _value_of(named, name, value) for label, value in choices.values.items()}
        for name, choices in named.target.choices.items()
        if choices.values
    }


def value_digest(value: Json) -> str:
    """The digest of a value that is not a file."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:_SHOWN]


def _value_of(named: NamedTarget, parameter: str, value: Json) -> str:
    """The digest of a value: of what is in its file, if it names one."""
    if parameter not in named.target.files() or not isinstance(value, str):
        return value_digest(value)
    return hashlib.sha256(b"".join(_contents(named, value))).hexdigest()[:_SHOWN]


def _digest(named: NamedTarget, but: Collection[str] = ()) -> str:
    """The digest of all settings but the parameters in ``but``."""
    target = named.target
    settings = target.model_dump(mode="json")
    if target.output is None:
        del settings["output"]  # the evaluator says what an answer is, and not the target
    for name in (*_NO_PART_OF_ANSWERS, *but):
        settings.pop(name, None)
    for name in ("options", "parameters"):
        if name in settings:
            settings[name] = {key: value for key, value in settings[name].items() if key not in but}
    if not settings.get("parameters"):
        settings.pop("parameters", None)  # as before there were any: what was recorded then is still of these settings
    whole = hashlib.sha256(canonical_json(settings))
    for key, pattern in target.files().items():
        for content in _contents(named, pattern) if pattern and key not in but else ():
            whole.update(content)
    return whole.hexdigest()[:_SHOWN]


def files_seen(named: NamedTarget) -> tuple[object, ...]:
    """What shows that the files were changed which its digests are of, those that may be chosen too; none is read."""
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
    """Of each file that a path of the targets file may stand for, whichever agent is called: its name and content.

    Where a folder is the agent's, the name begins with that: it says whose prompt the file is.
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
        # By its bytes: no agent is called as a file that is not named in UTF-8, but it may lie there.
        yield os.fsencode(name) + b"\0" + content
