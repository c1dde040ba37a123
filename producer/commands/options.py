"""Options that several commands share, and how an evaluator's own are added to them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from evalq.evalcore.contract.evaluator import Evaluator, Option
from evalq.evalcore.contract.params import load_mapping, option_params
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.model.calls import WHEN_DECIDED

__all__ = [
    "calling_options",
    "click_option",
    "follow_options",
    "live_options",
    "output_options",
    "params_from",
    "place_options",
    "settings_from",
    "tags_from",
    "without",
]


def _option(*flags: str, **attrs: Any) -> click.Option:
    name = max((f for f in flags if f.startswith("-")), key=len).lstrip("-").replace("-", "_").upper()
    return click.Option(list(flags), envvar=f"EVALQ_{name}", **attrs)


def place_options() -> list[click.Option]:
    """Where to compute."""
    return [
        _option("--broker", metavar="URL", help="Redis, Valkey or RabbitMQ to use; without it, an embedded server."),
        _option("--ledger", metavar="URL", help="Redis or Valkey for the ledger, where the broker is another server."),
        _option("--workers", type=click.IntRange(1, 1024), help="Local worker processes to start."),
        _option("--inline", is_flag=True, help="No queue: evaluate in this process."),
        _option("--settings", type=click.Path(dir_okay=False), help="A YAML file of settings."),
    ]


def calling_options() -> list[click.Option]:
    """Making live calls from here, and how many."""
    return [
        _option("--targets", type=click.Path(dir_okay=False), metavar="FILE",
                help="Call from here, by this targets file; without it, the fleet's --calls workers do."),
        _option("--calls", type=click.IntRange(1, 10_000), help="Live calls in flight from here [50]."),
        _option("--max-calls", type=click.IntRange(1), metavar="N", help="Stop after so many calls, retries included."),
        _option("--max-cost", type=click.FloatRange(0, min_open=True), metavar="COST",
                help="Stop when the priced tokens of all calls cost so much."),
    ]  # fmt: skip


def live_options(evaluator: Evaluator[Any, Any]) -> list[click.Option]:
    """What a live sweep of ``evaluator`` is; none for one that asks nobody."""
    calls = evaluator.calls
    if calls is None:
        return []
    options = [
        click.Option(
            [f"--{calls.option}", "target"],
            envvar=f"EVALQ_{calls.option.upper()}",
            metavar="NAME",
            help="Call this target of the workers' targets file, and evaluate what it answers.",
        )
    ]
    if calls.repeats:
        options += [
            _option("--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True,
                    help="Calls of each case."),
            _option("--stop", type=click.Choice([WHEN_DECIDED]),
                    help="Call a case no more once its verdict is certain, however often one looks."),
        ]  # fmt: skip
    cache = _option(
        "--cache",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Take outputs of the same prompts and settings from this file, and keep new ones there.",
    )
    return [*options, cache, *calling_options()]


def output_options() -> list[click.Option]:
    """What to tell and what to write."""
    return [
        _option("--format", "fmt", type=click.Choice(["markdown", "json", "yaml", "none"]), default="markdown",
                show_default=True, help="What standard output shows."),
        _option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                help="Also write FILE: .json .yaml .md the report; .jsonl .csv .parquet the records "
                "(.excel.csv for Excel). Repeatable."),
        _option("--json", "json_lines", is_flag=True, help="Standard output carries JSON lines only."),
        _option("--no-progress", is_flag=True, help="No progress bar."),
        _option("--allow-dead", type=click.IntRange(0), default=0, metavar="N",
                help="Exit 0 with at most N records without a result: they killed their process, or no answer came."),
        _option("-q", "--quiet", is_flag=True, help="Nothing on standard error but errors."),
        _option("-v", "--verbose", is_flag=True, help="What happened, in more detail."),
    ]  # fmt: skip


def run_options() -> list[click.Option]:
    """What to run."""
    return [
        _option("--params", type=click.Path(exists=True, dir_okay=False), help="Parameters: a YAML or JSON file."),
        _option("--out", "--run-dir", "out", type=click.Path(path_type=Path), metavar="DIR",
                help="Run folder [evalq-runs/<run id>]."),
        _option("--chunk-size", type=click.IntRange(1), help="Records in a chunk [about 4 MiB]."),
        _option("--limit", type=click.IntRange(1), help="Stop after so many records."),
        _option("--suite", default="default", show_default=True, help="Name under which runs are compared."),
        _option("--tag", "tags", multiple=True, metavar="K=V", help="A note kept with the run. Repeatable."),
        _option("--priority", type=click.Choice(["interactive", "bulk"]), default="bulk", show_default=True,
                help="Queue class: interactive runs are served first."),
        _option(
            "--once",
            metavar="KEY",
            help="The same key, inputs, parameters, chunk size, limit, suite and version of evalq are one run.",
        ),
        _option("--detach", is_flag=True, help="Publish, print the run id and leave (needs --broker)."),
        _option("--dry-run", is_flag=True, help="Read and plan only: say what would be evaluated."),
    ]  # fmt: skip


def follow_options() -> list[click.Option]:
    """How to follow a log that grows."""
    return [
        _option("--follow", is_flag=True, help="Keep reading as the log grows, and report the whole. See --every."),
        _option("--every", type=click.FloatRange(0.1), metavar="SECONDS", help="Seconds between looks [5]."),
        _option("--passes", type=click.IntRange(1), metavar="N", help="End after N looks: 1 for cron [no end]."),
        _option("--verify", is_flag=True, help="First read again all that was read, to see that it is the same."),
    ]


def without(options: Iterable[click.Option], taken: Iterable[Option]) -> list[click.Option]:
    """``options`` without the flags an evaluator uses itself; one that has no flag left is not there."""
    flags = {flag for option in taken for flag in option.flags}
    kept = []
    for option in options:
        option.opts = [flag for flag in option.opts if flag not in flags]
        kept += [option] if option.opts else []
    return kept


def click_option(option: Option) -> click.Option:
    """An evaluator's option for the command line."""
    kinds: dict[str, Any] = {"str": str, "int": int, "float": float, "path": click.Path(exists=True), "bool": None}
    attrs: dict[str, Any] = {"help": option.help, "envvar": f"EVALQ_{option.name.upper()}"}
    if option.kind == "bool":
        attrs |= {"is_flag": True, "default": None}
    else:
        attrs |= {"type": click.Choice(option.choices) if option.choices else kinds[option.kind]}
        attrs |= {"multiple": option.many}
    return click.Option([*option.flags, f"own_{option.name}"], **attrs)


def params_from(file: str | None, options: tuple[Option, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Parameters from a file with the options that name one laid over it. Raises ConfigError."""
    return option_params(options, given, load_mapping(file) if file else {})


def tags_from(tags: Iterable[str]) -> dict[str, str]:
    """{key: value} of K=V notes. Raises UsageError."""
    pairs = [tag.partition("=") for tag in tags]
    for (key, sign, _), tag in zip(pairs, tags, strict=True):
        if not key or not sign:
            raise UsageError(f"--tag {tag}: write it as key=value")
    return {key: value for key, _, value in pairs}


def settings_from(given: dict[str, Any]) -> Any:
    """Settings from the command line, the environment and a file."""
    from evalq.workers.settings import load_settings

    if given.get("inline") and given.get("broker"):
        raise ConfigError("--inline uses no broker: omit --broker (or unset EVALQ_BROKER)")
    named = {name: given.get(name) for name in ("broker", "ledger", "targets", "calls")}
    settings = load_settings(given.get("settings"), **named)
    if settings.ledger and not settings.broker:
        raise ConfigError("a ledger is named, and no broker to go with it: --broker URL or EVALQ_BROKER")
    return settings
