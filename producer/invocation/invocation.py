"""A command line as typed values, how a command is declared, and the command line as run.json keeps it."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.naming import is_text
from evalq.evalcore.views.markdown import printed
from evalq.producer.invocation.help import HelpfulCommand

if TYPE_CHECKING:
    from evalq.producer.folder.job import RunOptions
    from evalq.producer.monitor.progress import Reporter
    from evalq.producer.run.backend import Backend
    from evalq.producer.servers import Servers
    from evalq.producer.sweep.options import SweepOptions
    from evalq.workers.settings import Settings


# The command line in run.json: without passwords, and without the environment.

# Up to the last @, since a password may contain one.
_USER = re.compile(r"(://[^:/@\s]*:)\S*@")
# A user name alone may be a password: redis://secret@host.
_USER_ALONE = re.compile(r"(://)[^:/@\s]+@")
_QUERY = re.compile(r"([?&]\w*(?:password|token|secret|key)=)[^&#\s]*", re.IGNORECASE)


def command_line(words: Sequence[str] | None = None) -> list[str]:
    """This process's command line (or ``words``), with passwords of URLs as ``***``."""
    given = sys.argv[1:] if words is None else words
    return ["evalq", *(_hidden(word) for word in given)]


def _hidden(word: str) -> str:
    return _QUERY.sub(r"\1***", _USER_ALONE.sub(r"\1***@", _USER.sub(r"\1***@", word)))


_INNER_UNDERSCORE = re.compile(r"(?<=\w)\\_(?=\w)")
"""An escape that Markdown does not need: within a word an underscore emphasises nothing."""
_OWN = "own_"
"""Prefix of an evaluator's own options, since shared options may have the same names."""


class PlaceArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Where to compute and to call: `place_options` and `calling_options`."""

    broker: str | None = None
    ledger: str | None = None
    settings: str | None = None
    workers: int | None = None
    inline: bool = False
    targets: str | None = None
    calls: int | None = None
    scorer: str | None = None

    def load(self) -> Settings:
        """Settings from the command line, the environment and a file. Raises ConfigError."""
        from evalq.workers.settings import load_settings

        if self.inline and self.broker:
            raise ConfigError("--inline uses no broker: omit --broker (or unset EVALQ_BROKER)")
        named = {"broker": self.broker, "ledger": self.ledger, "targets": self.targets, "calls": self.calls}
        named["scorer"] = self.scorer
        settings = load_settings(self.settings, **named)
        if settings.ledger and not settings.broker:
            raise ConfigError("a ledger needs a broker: give --broker URL, or set EVALQ_BROKER")
        return settings


class OutputArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What to print and to write: `output_options`."""

    fmt: str = "markdown"
    outputs: tuple[Path, ...] = ()
    json_lines: bool = False
    no_progress: bool = False
    allow_dead: int = 0
    quiet: bool = False
    verbose: bool = False

    def reporter(self, unit: str) -> Reporter:
        """The reporter of a run's progress, counted in ``unit`` (such as "rows")."""
        from evalq.producer.monitor.progress import Reporter

        return Reporter(
            unit, quiet=self.quiet, bar=not self.no_progress, json_lines=self.json_lines, verbose=self.verbose
        )


class StartArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: `run_options`."""

    params: str | None = None
    out: Path | None = None
    chunk_size: int | None = None
    limit: int | None = None
    suite: str = "default"
    tags: tuple[str, ...] = ()
    priority: str = "bulk"
    once: str | None = None
    detach: bool = False
    dry_run: bool = False

    def options(self, unpack_bytes: int) -> RunOptions:
        """The options of a job. Raises UsageError for a tag that is not key=value."""
        from evalq.producer.folder.job import RunOptions

        return RunOptions(
            out=self.out,
            chunk_size=self.chunk_size,
            limit=self.limit,
            suite=self.suite,
            priority=self.priority,
            tags=_tags_from(self.tags),
            once=self.once or "",
            unpack_bytes=unpack_bytes,
            whole=self.detach,
        )


class LiveArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Which live calls to make: `live_options` and `calling_options`."""

    target: str | None = None
    repeat: int = 1
    stop: str | None = None
    cache: str | None = None
    reuse: tuple[str, ...] = ()
    no_prompts: bool = False
    max_calls: int | None = None
    max_cost: float | None = None

    @property
    def budgets(self) -> tuple[int | None, float | None]:
        """Most calls, and most cost."""
        return self.max_calls, self.max_cost

    def options(self) -> SweepOptions:
        """The options of a sweep. Raises UsageError for a run that is not here."""
        from evalq.producer.invocation.finding import find
        from evalq.producer.sweep.options import SweepOptions

        return SweepOptions(
            target=self.target or "",
            repeat=self.repeat,
            stop=self.stop or "",
            max_calls=self.max_calls or 0,
            max_cost=self.max_cost or 0.0,
            cache=self.cache or "",
            reuse=tuple(str(find(run).path.absolute()) for run in self.reuse),
            keep_prompts=not self.no_prompts,
        )


class FollowArguments(msgspec.Struct, frozen=True, kw_only=True):
    """How to follow a log: `follow_options`."""

    follow: bool = False
    every: float | None = None
    passes: int | None = None
    settle: float | None = None
    verify: bool = False


_Group = TypeVar("_Group", bound=msgspec.Struct)


class Invocation(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all options of all commands; options that a command does not have keep their defaults.

    ``own`` holds the values of an evaluator's own options, by their names.
    """

    where: PlaceArguments = PlaceArguments()
    output: OutputArguments = OutputArguments()
    start: StartArguments = StartArguments()
    live: LiveArguments = LiveArguments()
    following: FollowArguments = FollowArguments()
    own: dict[str, Any] = {}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Invocation:
        """Group the values that click has read, by the names of its parameters."""

        given = _with_named_targets(given)

        def group(kind: type[_Group]) -> _Group:
            return kind(**{name: given[name] for name in kind.__struct_fields__ if name in given})

        return cls(
            where=group(PlaceArguments),
            output=group(OutputArguments),
            start=group(StartArguments),
            live=group(LiveArguments),
            following=group(FollowArguments),
            own={name.removeprefix(_OWN): value for name, value in given.items() if name.startswith(_OWN)},
        )

    @staticmethod
    def holds(name: str) -> bool:
        """Whether this class takes a parameter of this name."""
        groups = (PlaceArguments, OutputArguments, StartArguments, LiveArguments, FollowArguments)
        return name.startswith(_OWN) or any(name in group.__struct_fields__ for group in groups)

    def backend(self) -> Backend:
        """Where runs are computed. Raises ConfigError, and UsageError for --detach without a broker."""
        from evalq.producer.run.backend import Backend
        from evalq.workers.processes.system import FORKS

        settings = self.where.load()
        if self.start.detach and not settings.broker:
            raise UsageError("--detach needs --broker: an embedded server ends with this command")
        # Where no worker can be started, this process evaluates.
        inline = self.where.inline or not (FORKS or settings.broker or self.where.workers)
        return Backend(settings, inline=inline, workers=self.where.workers)

    def servers(self) -> Servers:
        """The named servers; the caller closes them. Raises ConfigError."""
        from evalq.producer.servers import Servers

        return Servers(self.where.load())


def echo_markdown(text: str, *, nl: bool = True) -> None:
    """Print Markdown. A terminal shows its escapes, so that names there have plain underscores (pass_rate)."""
    click.echo(_INNER_UNDERSCORE.sub("_", text) if sys.stdout.isatty() else text, nl=nl)


_TARGETS = ("target", f"{_OWN}judge", f"{_OWN}embedder")
"""Options that name a target."""


def _with_named_targets(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """``given``, where targets that need no file are named by their specs. Raises UsageError."""
    from evalq.workers.targets.spec import is_spec, join

    specs = {option: value for option in _TARGETS if isinstance(value := given.get(option), str) and is_spec(value)}
    if not specs:
        return given
    first = next(iter(specs.values()))
    if given.get("targets"):
        raise UsageError(f"{first}: put this target into the targets file, or omit --targets")
    if given.get("broker"):
        raise UsageError(f"{first}: a fleet calls only targets of its own targets file; omit --broker, or name one")
    targets, names = join(specs.values())
    return {**given, "targets": targets, **{option: names[spec] for option, spec in specs.items()}}


def _tags_from(tags: Iterable[str]) -> dict[str, str]:
    """{key: value} of K=V notes. Raises UsageError."""
    pairs = [tag.partition("=") for tag in tags]
    for (key, sign, _), tag in zip(pairs, tags, strict=True):
        if not key or not sign:
            raise UsageError(f"--tag {tag}: a note kept with the run is written as key=value")
    return {key: value for key, _, value in pairs}


# The one way in which a command is declared.

DECIDING = ("check-regressions", "gate", "run")
"""Commands that check their arguments themselves: they write an error into the files of an earlier decision."""


_NEXT = {
    "cancel": "see all runs: evalq list",
    "demo": "write first cases and a target of your own: evalq init",
    "doctor": "write first cases and a target: evalq init",
    "forget": "see the others: evalq baseline list",
    "history": "compare two runs: evalq compare BASE CAND",
    "prune": "see what is left: evalq list",
    "report": "look at the answers: evalq view RUN; compare it with another run: evalq compare BASE RUN",
    "status": "wait for a run: evalq watch RUN; see its report: evalq report RUN",
    "targets": "call one: evalq checks cases.yaml --target NAME --targets FILE (--dry-run says what it would cost)",
}
"""{command: what to do after it}; other commands say it themselves, with the names that they know."""


def next_step(text: str) -> None:
    """Print what to do next, as a command's last line, on standard error."""
    with contextlib.suppress(OSError):
        click.echo(printed(f"next: {text}"), err=True)


def command(
    call: Callable[..., int | None],
    *params: click.Parameter,
    name: str = "",
    text: str = "",
    kind: type[click.Command] = HelpfulCommand,
) -> click.Command:
    """A command that calls ``call`` with the `Invocation`, and with the parameters that it names itself.

    It returns the exit code (None: 0). The command has the name of its module (or ``name``), and the module's docstring
    as help (or ``text``); `evalq --help` shows the first line. ``kind`` is the command's class.
    """
    module = sys.modules[call.__module__]
    mine = inspect.signature(call).parameters.keys() - {"invocation"}
    # An option that neither of them takes would be accepted and ignored: fail when the program starts.
    lost = [param.name for param in params if param.name not in mine and not Invocation.holds(str(param.name))]
    if lost:
        raise TypeError(f"{call.__module__}: neither {call.__name__} nor Invocation takes {', '.join(map(str, lost))}")

    def callback(**given: Any) -> int | None:
        _refuse_bytes(click.get_current_context())
        own = {key: given.pop(key) for key in mine}
        code = call(Invocation.of(given), **own)
        # A probe of health asks --worker.
        machine = own.get("as_json") or own.get("worker") or given.get("quiet") or given.get("json_lines")
        if not code and not machine and (step := _NEXT.get(called)):
            next_step(step)
        return code

    called = name or call.__module__.rpartition(".")[2].replace("_", "-")
    return kind(
        name or call.__module__.rpartition(".")[2].replace("_", "-"),
        callback=callback,
        params=list(params),
        help=text or inspect.cleandoc(module.__doc__ or ""),
    )


def _refuse_bytes(ctx: click.Context) -> None:
    """Raise UsageError for an environment variable that is not UTF-8; `cli` checks the command line itself."""
    for param in ctx.command.params if ctx.command.name not in DECIDING else ():
        source = ctx.get_parameter_source(param.name or "")
        value = os.environ.get(str(param.envvar), "") if source is click.core.ParameterSource.ENVIRONMENT else ""
        if not is_text(value):
            raise UsageError(f"{param.envvar}: {value!a} is not text in UTF-8")
