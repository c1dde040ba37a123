"""Settings of producers and workers, read once at start from EVALQ_* variables and a YAML file."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.contract.plugins import name_checks
from evalq.evalcore.contract.scoring import name_scorer, split_scorer
from evalq.evalcore.errors import ConfigError, EvalqError
from evalq.evalcore.naming import is_text
from evalq.workers.address import Address, read_address
from evalq.workers.names import DEPLOY_VARIABLES, OPTION_VARIABLES, PREFIX, is_service_link
from evalq.workers.processes.system import usable_cpus

_NEAR = 0.8
"""The similarity from which a variable counts as misspelt: EVALQ_BORKER is .83 similar to EVALQ_BROKER."""
_UNIT = re.compile(r"_(URL|URI|FILE|PATH|DIR|S|SECS|SECONDS)$")
"""Endings that people add to a setting's name, such as EVALQ_BROKER_URL."""
_SERVER = re.compile(r"(redis|rediss|valkey|valkeys|unix|amqp|amqps)://", re.IGNORECASE)
_CHECK = re.compile(r"[a-z][a-z0-9-]*=[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ARGUMENT = re.compile(r"x-[a-z][a-z-]*=[\w.:-]{1,100}")
_WEIGHT = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}=\d{1,4}(\.\d{1,3})?")
_SINGLE = ("HANDED", "LOGLEVEL", "SETTINGS", "BASELINE", "CANDIDATE", "ONCE")
_warned_of: set[str] = set()
log = logging.getLogger("evalq.settings")


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Times that are not settings, in seconds. They are parameters, so that tests can use shorter ones."""

    beat: float = 2.0
    """Between two heartbeats of a worker or caller: a fifth of ``life``, because some are late or lost."""
    life: float = 10.0
    """How long a worker or caller counts as alive after a heartbeat."""
    call_lease: float = 10.0
    """How long a silent process keeps its claimed calls."""
    call_names: float = 1.0
    """How often a process lists its calls in the ledger, which then releases all others of this process."""
    call_poll: float = 0.2
    """Between two searches for calls while a process has free slots."""
    call_pause: float = 0.01
    """Between two claims of a busy process; one claim fills all slots that became free in between."""


TIMINGS = Timings()


class Settings(BaseModel):
    """All settings, frozen. `load_settings` reads each field from the command line, else the variable
    ``EVALQ_<FIELD>``, else the YAML file that ``EVALQ_SETTINGS`` or ``--settings`` names.

        settings = load_settings("settings.yaml", broker="redis://localhost:6379/0")

    Times are in seconds, sizes in bytes, unless the name says otherwise. docs/reference/settings.md lists all.
    """

    # Otherwise an error would show its input, and a URL may contain a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    broker: str = Field(default="", description="Broker URL: redis://, rediss://, unix:// or amqp://; empty: embedded")
    ledger: str = Field(default="", description="Ledger URL (Redis or Valkey); empty: the broker's")
    ledger_name: str = Field(
        default="",
        description="The ledger's name in the exporter's label `ledger`; empty: its host, port and database",
    )
    concurrency: int | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="Pool processes of a worker; 0: none; not given: one per usable CPU",
    )
    calls: int = Field(default=0, ge=0, le=10_000, description="Live calls in flight of a worker; 0: it makes none")
    roots: tuple[Path, ...] = Field(
        default=(), description="Folders that workers may read (the variable has the form of PATH); empty: the current"
    )
    team: str = Field(
        default="",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$|^$",
        description="The team whose share of the fleet the runs of this producer use; a team has one share, however "
        "many runs it has",
    )
    team_weights: tuple[str, ...] = Field(
        default=(),
        description="For workers that make live calls: how large the shares of teams are beside each other, each "
        "NAME=WEIGHT (separated by commas in the variable); other teams have 1",
    )
    window: int = Field(default=64, ge=1, le=100_000, description="Messages of one run in flight")
    lease_seconds: float = Field(default=5.0, gt=0.1, le=600, description="How long a silent worker keeps a chunk")
    driver_seconds: float = Field(default=10.0, gt=0.1, le=600, description="How long a silent producer keeps its run")
    unserved_seconds: float = Field(
        default=300.0,
        gt=0,
        le=86_400 * 7,
        description="How long a run waits while no living worker can load its evaluator or read its input",
    )
    poll_seconds: float = Field(default=1.0, gt=0.01, le=60, description="Time between searches for lost work")
    grace_seconds: float = Field(default=2.0, gt=0.01, le=600, description="How old a message is before it can be lost")
    keep_days: float = Field(default=7.0, gt=0, le=365, description="How long a run stays in the ledger")
    blob_bytes: int = Field(
        default=64 << 20, ge=1 << 20, description="Maximum input bytes of a run in Redis at one time"
    )
    chunk_seconds: float = Field(
        default=60.0, gt=0, le=86_400, description="Time limit of a chunk, and of a record that is retried alone"
    )
    chunk_megabytes: int = Field(
        default=2048, ge=128, description="Memory limit of a chunk, in MiB beyond the process's own"
    )
    cases_records: int = Field(
        default=20_000, ge=0, description="Store the results of cases with a run's report, up to this many records"
    )
    cases_bytes: int = Field(
        default=1 << 30, ge=1, description="Maximum size of stored cases, or of a baseline, after unpacking"
    )
    unpack_bytes: int = Field(default=8 << 30, ge=1, description="Maximum size of a .gz or .zst input after unpacking")
    tasks_per_child: int = Field(
        default=1000, ge=1, description="Chunks that a pool process computes before evalq replaces it"
    )
    health_file: str = Field(
        default="",
        description="File for health probes, named with the worker's pid as its ending: at each heartbeat the worker "
        "writes whether it reached the ledger; empty: none",
    )
    soft_shutdown_seconds: float = Field(
        default=10.0, ge=0, description="How long running chunks may take to finish after SIGTERM"
    )
    max_suites: int = Field(
        default=100, ge=1, le=10_000, description="Maximum number of suites with their own counters"
    )
    max_series: int = Field(
        default=1000, ge=1, le=100_000, description="Maximum number of label sets of one metric; more count as `other`"
    )
    history_runs: int = Field(default=100, ge=10, le=10_000, description="Finished runs in the history of a suite")
    histories: int = Field(
        default=200, ge=1, le=10_000, description="Maximum number of histories (one per suite, evaluator and target)"
    )
    stuck_seconds: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="A worker counts as stuck if it takes nothing for this time while its queue has work",
    )
    queue_arguments: tuple[str, ...] = Field(
        default=(),
        description="Arguments of queues on RabbitMQ, each NAME=VALUE: x-queue-type=quorum, "
        "x-consumer-timeout=7200000 (separated by commas in the variable); equal for producers and workers",
    )
    checks: tuple[str, ...] = Field(
        default=(),
        description="Your own checks for `evalq checks`, each NAME=MODULE:FUNCTION of a module that Python can import "
        "(separated by commas in the variable)",
    )
    scorer: str = Field(
        default="",
        description="Your own function for `evalq score`, as FILE.py or FILE.py:FUNCTION; the same file for producers "
        "and workers",
    )
    celery_events: bool = Field(
        default=False,
        description="Workers send Celery's events and heartbeats to the broker, for celery events, Flower and "
        "celery-exporter",
    )
    remote_control: Literal["off", "read-only"] = Field(
        default="off",
        description="read-only: workers answer celery inspect ping, active, reserved, registered, stats and "
        "active_queues, and refuse all else",
    )
    targets: str = Field(default="", description="Targets file, which lists the agents that live calls may go to")
    submit: str = Field(
        default="",
        description="Folder of a worker whose suites and files other programs may evaluate by the Celery task "
        "evalq.submit; empty: they may not",
    )
    submit_broker: str = Field(
        default="", description="Broker URL for evalq.submit, with a database or virtual host of its own"
    )
    submit_results: str = Field(
        default="", description="Redis or Valkey URL for the results of evalq.submit; empty: submit_broker"
    )
    down_seconds: float = Field(
        default=300.0, gt=0, le=604_800, description="How long a sweep waits for a target that does not answer"
    )
    patience_seconds: float = Field(
        default=120.0, gt=0, le=86_400, description="How long a command waits for a server that is away, full or busy"
    )
    connect_seconds: float = Field(default=4.0, gt=0, le=60, description="Time limit for connecting to a server")

    @field_validator("roots", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        """Split a variable's text like PATH."""
        return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("remote_control", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """YAML reads the word off as false."""
        return "off" if value is False else value

    @field_validator("checks", "queue_arguments", "team_weights", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """Split a variable's text at commas, and turn a file's mapping into NAME=VALUE texts."""
        if isinstance(value, Mapping):
            return tuple(f"{name}={json.dumps(it) if isinstance(it, bool) else it}" for name, it in value.items())
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("checks")
    @classmethod
    def _are_functions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not _CHECK.fullmatch(each):
                raise ValueError(f"{each!r} is not NAME=MODULE:FUNCTION, such as polite=shop_checks:polite")
        if len({each.partition("=")[0] for each in value}) < len(value):
            raise ValueError("a name occurs twice")
        return value

    @field_validator("queue_arguments")
    @classmethod
    def _are_arguments(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not _ARGUMENT.fullmatch(each):
                raise ValueError(f"{each!r} is not NAME=VALUE, such as x-queue-type=quorum")
        if len({each.partition("=")[0] for each in value}) < len(value):
            raise ValueError("a name occurs twice")
        return value

    @field_validator("team_weights")
    @classmethod
    def _are_weights(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not _WEIGHT.fullmatch(each) or not 0.001 <= float(each.partition("=")[2]) <= 1000:
                raise ValueError(f"{each!r} is not NAME=WEIGHT with a weight of 0.001 to 1000, such as search=2")
        if len({each.partition("=")[0] for each in value}) < len(value):
            raise ValueError("a name occurs twice")
        return value

    @field_validator("scorer")
    @classmethod
    def _is_file(cls, value: str) -> str:
        """Make the path absolute, because processes that this one starts have other current folders."""
        if not value:
            return value
        try:
            path, function = split_scorer(value)
        except ConfigError:  # `take_checks` raises it again, with a better message
            return value
        return f"{path.absolute()}:{function}" if function else str(path.absolute())

    @property
    def queue_options(self) -> dict[str, str | int | bool]:
        """``queue_arguments`` with the types that RabbitMQ expects: int, bool or str."""
        pairs = (each.partition("=")[::2] for each in self.queue_arguments)
        words: dict[str, bool] = {"true": True, "false": False}
        return {name: int(text) if text.isdigit() else words.get(text, text) for name, text in pairs}

    @property
    def is_open(self) -> bool:
        """Whether workers speak to Celery's own tools, under Celery's names."""
        return self.celery_events or self.remote_control != "off"

    @property
    def weights(self) -> dict[str, float]:
        """``team_weights`` by team."""
        return {name: float(weight) for name, _, weight in (each.partition("=") for each in self.team_weights)}

    @property
    def processes(self) -> int:
        """Pool processes of a worker on this machine."""
        return usable_cpus() if self.concurrency is None else self.concurrency

    @property
    def answer_seconds(self) -> float:
        """The time limit for one reply of a server."""
        return min(30.0, self.patience_seconds)

    @property
    def broker_address(self) -> Address:
        """The server with the queues. Raises ConfigError for an invalid URL."""
        return read_address(self.broker)

    @property
    def ledger_address(self) -> Address:
        """The ledger's server, by default the broker's. Raises ConfigError for an invalid URL."""
        return read_address(self.ledger or self.broker)

    @property
    def ledger_apart(self) -> bool:
        """Whether the ledger is on another server than the queues, or in another database of it."""
        return self.ledger_address.location != self.broker_address.location

    @property
    def keep_ms(self) -> int:
        """``keep_days`` in milliseconds."""
        return int(self.keep_days * 86_400_000)


def load_settings(file: str | Path | None = None, **given: Any) -> Settings:
    """The settings of this process; ``given`` values other than None override variables and ``file``.

    Also registers the checks and the scorer that they name in this process. Raises ConfigError, which names the
    variable or key.
    """
    if file is not None and not Path(file).is_file():
        raise ConfigError(f"{file}: no such settings file")
    variables = _variables(os.environ)
    _warn_of_project(Path("pyproject.toml"))
    known = {key: value for key, value in given.items() if value is not None}
    written = load_mapping(file, empty=True) if file is not None else {}
    try:
        settings = Settings(**{**written, **variables, **known})
    except ValidationError as error:
        lines = [_wrong(each["type"], ".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
        raise ConfigError(f"wrong settings ({file or 'EVALQ_* variables'}): " + "; ".join(lines)) from None
    for name in ("broker", "ledger", "submit_broker", "submit_results"):
        _check_address(name, getattr(settings, name))
    if settings.queue_arguments and settings.broker and settings.broker_address.is_redis:
        raise ConfigError(
            f"queue_arguments: only RabbitMQ's queues have arguments, and the broker is {settings.broker_address}: "
            "omit them, or name an amqp:// broker"
        )
    take_checks(settings)
    return settings


def _wrong(kind: str, key: str, message: str) -> str:
    """pydantic's ``message`` on a key; for an unknown key, the most similar setting."""
    if kind != "extra_forbidden":
        return f"{key}: {message}"
    near = _nearest(key, Settings.model_fields, 0.0)
    return f"{key}: no such setting; is it {near}?"


def _check_address(name: str, url: str) -> None:
    """Raise ConfigError for an invalid URL at once, even if this command never connects to it."""
    try:
        if url:
            read_address(url)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def check_variables() -> None:
    """Raise ConfigError for a misspelt variable, in a command that reads no settings."""
    _variables(os.environ)


def take_checks(settings: Settings) -> None:
    """Register the checks and the scoring function that ``settings`` name in this process. Raises ConfigError."""
    name_checks(dict(each.split("=", 1) for each in settings.checks))
    name_scorer(settings.scorer)


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """{field: value} of the settings' variables, whose names may be in upper or lower case.

    Raises ConfigError for a value that is not UTF-8. Also raises it for an unknown name similar to a known one, which
    would otherwise silently have no effect. Logs a warning for other unknown names.
    """
    settings = [name.upper() for name in Settings.model_fields]
    ours = {name[len(PREFIX) :]: name for name in environment if name.upper().startswith(PREFIX)}
    strange = [name for name in ours if name.upper() not in (*settings, *OPTION_VARIABLES, *_SINGLE, *DEPLOY_VARIABLES)]
    unknown = sorted(ours[name] for name in strange if not is_service_link(name))
    _refuse_strange({name: environment[name] for name in unknown}, settings)
    found = {name.lower(): environment[ours[name]] for name in ours if name.upper() in settings}
    for name, value in found.items():
        if not is_text(value):  # it could not be sent to a server or another process
            raise ConfigError(f"{PREFIX}{name.upper()}: {value!a} is not text in UTF-8")
    return found


def _refuse_strange(names: Mapping[str, str], settings: Sequence[str]) -> None:
    """Raise ConfigError for the first name similar to a known variable; warn once of each other unknown name."""
    if not names:
        return
    options = _evaluators_options()  # only now: this imports all evaluators
    for name in (name for name in names if name.upper().removeprefix(PREFIX) not in options):
        known = [*settings, *OPTION_VARIABLES, *_SINGLE, *options]
        short = _UNIT.sub("", name.upper().removeprefix(PREFIX))
        near = _nearest(name.upper().removeprefix(PREFIX), known) or _nearest(short, known)
        if near := near or ("BROKER" if _SERVER.match(names[name]) else ""):  # EVALQ_REDIS=redis://...
            raise ConfigError(f"{name}: no such setting; is it {PREFIX}{near}?")
        if name not in _warned_of:
            _warned_of.add(name)
            alike = _nearest(short, known, 0.0)
            log.warning("%s: evalq reads no such variable; the nearest is %s%s", name, PREFIX, alike)


def _evaluators_options() -> set[str]:
    found: set[str] = set()
    for name in plugins.names():
        try:
            evaluator = plugins.get(name)
        except EvalqError:  # reported when somebody uses that evaluator
            continue
        own = [*evaluator.command.options, *(each for extra in evaluator.command.commands for each in extra.options)]
        found |= {option.name.upper() for option in own}
        found |= {evaluator.calls.option.upper()} if evaluator.calls else set()
    return found


def _warn_of_project(file: Path) -> None:
    """Warn that evalq does not read settings from a project's file, and suggest names for misspelt keys."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if "evalq" not in text:
            return
        import tomllib  # only if the file mentions evalq

        table = tomllib.loads(text).get("tool", {}).get("evalq")
    except (OSError, ValueError):  # another program's file: that program reports its faults
        return
    if not isinstance(table, dict) or str(file) in _warned_of:
        return
    _warned_of.add(str(file))
    fields = list(Settings.model_fields)
    shown = [key if key in fields else f"{key} (is it {_nearest(key, fields, 0.0)}?)" for key in map(str, table)]
    log.warning(
        "%s: [tool.evalq] is not read (%s): a checkout must not choose servers or targets; put the settings into a "
        "YAML file and name it with --settings or EVALQ_SETTINGS",
        file, ", ".join(shown) or "it is empty",
    )  # fmt: skip


def _nearest(name: str, known: Iterable[str], cutoff: float = _NEAR) -> str:
    """The member of ``known`` that is most similar to ``name``, with a similarity of at least ``cutoff``; else ""."""
    from difflib import get_close_matches  # only if there are unknown names

    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")
