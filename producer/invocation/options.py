"""Options that several commands share, and how an evaluator's own are added to them."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from evalq.evalcore.contract.evaluator import Evaluator, Option


class Finite(click.FloatRange):
    """A range of finite numbers: every bound would let "nan" pass."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises BadParameter."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def option(*flags: str, **attrs: Any) -> click.Option:
    """An option that is also read from EVALQ_<its longest flag>."""
    name = max((f for f in flags if f.startswith("-")), key=len).lstrip("-").replace("-", "_").upper()
    return click.Option(list(flags), envvar=f"EVALQ_{name}", **attrs)


def from_environment(name: str) -> bool:
    """Whether the current command has the option ``name`` from its environment variable."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.ENVIRONMENT


def on_command_line(name: str) -> bool:
    """Whether the current command has the option ``name`` from its command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def server_options() -> list[click.Option]:
    """The fleet that a command reads from, without computing there."""
    broker, *others = [each for each in place_options() if each.name in ("broker", "ledger", "settings")]
    broker.help = "The fleet's server: Redis, Valkey or RabbitMQ."
    return [broker, *others]


def place_options() -> list[click.Option]:
    """Where to compute."""
    return [
        option(
            "--broker", metavar="URL", help="Redis, Valkey or RabbitMQ to use; without it a long job starts its own."
        ),
        option("--ledger", metavar="URL", help="Redis or Valkey that holds the ledger, if it is not the broker."),
        option("--workers", type=click.IntRange(1, 1024), help="Local worker processes [one per core for a long job]."),
        option("--inline", is_flag=True, help="No queue: evaluate in this process."),
        option("--settings", type=click.Path(dir_okay=False), metavar="FILE", help="A YAML file of settings."),
    ]


def scorer_option() -> click.Option:
    """The function of runs of `evalq score`."""
    return option("--scorer", metavar="FILE.py", help="For `evalq score`: the file of your function, unchanged.")


def calling_options() -> list[click.Option]:
    """Live calls from this process, and how many."""
    return [
        option("--targets", type=click.Path(dir_okay=False), metavar="FILE",
                help="Make the calls from here, with the targets in FILE (with --broker, give --calls, too). "
                     "Without it, the fleet's --calls workers make them."),
        option("--calls", type=click.IntRange(1, 10_000),
                help="Make at most this many live calls at once from here [50]."),
        option("--max-calls", type=click.IntRange(1), metavar="N", help="Stop after N calls, retries included."),
        option("--max-cost", type=Finite(0, min_open=True), metavar="COST",
                help="Stop when all calls together have cost COST, by their tokens and the target's price."),
    ]  # fmt: skip


def live_options(evaluator: Evaluator[Any, Any]) -> list[click.Option]:
    """The options of a live sweep; none for an evaluator that makes no calls."""
    from evalq.evalcore.model.calls import WHEN_DECIDED

    calls = evaluator.calls
    if calls is None:
        return []
    options = [
        click.Option(
            [f"--{calls.option}", "target"],
            envvar=f"EVALQ_{calls.option.upper()}",
            metavar="NAME",
            help="Call a target of the targets file, or one that needs no file: openai:MODEL, anthropic:MODEL, "
            "gemini:MODEL, ollama:MODEL, http://..., python:MODULE:FUNCTION, command:PROGRAM. Record its answers, and "
            "evaluate them.",
        )
    ]
    if calls.repeats:
        options += [
            option("--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True,
                    help="How often to call each case."),
            option("--stop", type=click.Choice([WHEN_DECIDED]),
                    help="Stop calling a case once its verdict is certain."),
        ]  # fmt: skip
    cache = option(
        "--cache",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Reuse answers in FILE to the same prompts under the same settings, and add new answers to FILE.",
    )
    reuse = click.Option(
        ["--reuse"],
        multiple=True,
        metavar="RUN",
        help="Take over RUN's outputs of the same cases, prompts, repeats and settings. A gate does not count them as "
        "new evidence. Repeatable.",
    )
    prompts = click.Option(
        ["--no-prompts"], is_flag=True, help="Do not keep the prompts in the run folder. Pages then show no questions."
    )
    return [*options, cache, reuse, prompts, *calling_options()]


def as_json() -> click.Option:
    """JSON instead of text."""
    return click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of text.")


def allow_inconclusive() -> click.Option:
    """Exit with 0 if the decision is INCONCLUSIVE."""
    return option(
        "--allow-inconclusive",
        is_flag=True,
        help="Exit with 0 instead of 4 when the decision is INCONCLUSIVE (not when it is SUSPECT).",
    )


def recorded_options() -> list[click.Option]:
    """Decide by recorded answers or by statistics."""
    return [
        click.Option(
            ["--as-recorded", "mode"],
            flag_value="recorded",
            help="Compare each case's recorded answers. Exit 1: a case passed before and fails now. Exit 4: a case has "
            "no answer now. Exit 5: no case is in both.",
        ),
        click.Option(
            ["--statistical", "mode"],
            flag_value="statistical",
            help="Decide by statistics, also where recorded answers would decide.",
        ),
    ]


def judged() -> click.Option:
    """The name of the candidate that a gate decides on."""
    return option(
        "--candidate",
        default="",
        metavar="KEY",
        help="The candidate's name, such as a commit. Once a gate has stopped a candidate, later answers do not change "
        "that [evalq run: the key of --once; else the answers].",
    )


def confirming_options() -> list[click.Option]:
    """Call live targets again before a gate stops a candidate."""
    return [
        option("--confirm", is_flag=True,
                help="Before NO-GO, call both targets again, with twice the repeats (live targets only)."),
        option("--base-target", default="", metavar="NAME",
                help="With --confirm: the target that still answers as the baseline did [the baseline's]."),
    ]  # fmt: skip


def decision_outputs() -> click.Option:
    """Files of a decision or a comparison; the name selects the format."""
    return click.Option(
        ["-o", "--output", "outputs"],
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Also write FILE, by its name: .xml JUnit; .md a job summary; comment.md a pull request's comment; "
        "annotations.txt GitHub annotations; badge.json or .svg a badge; .html a page with answers side by side; .json "
        "everything. Repeatable.",
    )


def run_argument() -> click.Argument:
    """The run that a command is about; the latest, if none is named."""
    return click.Argument(["run"], required=False)


def output_options() -> list[click.Option]:
    """What to print and to write."""
    return [
        option("--format", "fmt", type=click.Choice(["markdown", "json", "yaml", "none"]), default="markdown",
                show_default=True, help="What standard output shows."),
        option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
                help="Also write FILE: .json .yaml .md .html the report; .xml its cases as JUnit; .jsonl .csv .parquet "
                "the records (.excel.csv for Excel). Repeatable."),
        option("--json", "json_lines", is_flag=True, help="Print events as JSON lines, and nothing else."),
        option("--no-progress", is_flag=True, help="No progress bar."),
        option("--allow-dead", type=click.IntRange(0), default=0, metavar="N",
                help="Exit with 0 if at most N records have no result (killed their process, or got no answer)."),
        option("-q", "--quiet", is_flag=True, help="Print only faults and delays."),
        option("-v", "--verbose", is_flag=True, help="Print more details."),
    ]  # fmt: skip


def run_options() -> list[click.Option]:
    """What to run."""
    return [
        option("--params", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
               help="Parameters: a YAML or JSON file."),
        option("--out", "--run-dir", "out", type=click.Path(path_type=Path), metavar="DIR",
                help="Run folder [evalq-runs/<run id>]."),
        option("--chunk-size", type=click.IntRange(1), metavar="N", help="Records in a chunk [about 4 MiB of them]."),
        option("--limit", type=click.IntRange(1), metavar="N", help="Stop after N records."),
        option("--suite", default="default", show_default=True, help="The run's suite. Its runs share a history."),
        option("--tag", "tags", multiple=True, metavar="K=V", help="A note kept with the run. Repeatable."),
        option("--priority", type=click.Choice(["interactive", "bulk"]), default="bulk", show_default=True,
                help="Queue class: interactive runs are served first."),
        option(
            "--once",
            metavar="KEY",
            help="Run once per KEY: the same command with the same KEY joins that run, or shows its report.",
        ),
        option("--detach", is_flag=True,
            help="Publish the run, print its id, and leave it to the fleet (needs --broker)."),
        option("--dry-run", is_flag=True, help="Only read and plan: print what would be evaluated or called."),
    ]  # fmt: skip


def follow_options() -> list[click.Option]:
    """How to follow a log that grows."""
    return [
        option("--follow", is_flag=True, help="Keep reading as the log grows, and report the whole. See --every."),
        option("--every", type=Finite(0.1), metavar="SECONDS", help="Seconds between passes [5]."),
        option("--passes", type=click.IntRange(1), metavar="N", help="End after N passes: 1 for cron [no end]."),
        option(
            "--settle",
            type=Finite(0.0),
            metavar="SECONDS",
            help="A trace is whole when its root is there and no span came for so long [30].",
        ),
        option(
            "--verify", is_flag=True, help="First read again what was read before, to check that it has not changed."
        ),
    ]


def without(options: Iterable[click.Option], taken: Iterable[Option]) -> list[click.Option]:
    """``options`` without the flags that an evaluator uses itself, and without options that have no flag left."""
    flags = {flag for each in taken for flag in each.flags}
    kept = []
    for each in options:
        each.opts = [flag for flag in each.opts if flag not in flags]
        kept += [each] if each.opts else []
    return kept


def own_option(own: Option) -> click.Option:
    """An evaluator's option for the command line."""
    kinds: dict[str, Any] = {"str": str, "int": int, "float": float, "path": click.Path(exists=True), "bool": None}
    attrs: dict[str, Any] = {"help": own.help, "envvar": f"EVALQ_{own.name.upper()}"}
    if own.kind == "bool":
        attrs |= {"is_flag": True, "default": None}
    else:
        attrs |= {"type": click.Choice(own.choices) if own.choices else kinds[own.kind]}
        attrs |= {"multiple": own.many}
    return click.Option([*own.flags, f"own_{own.name}"], **attrs)


def params_from(file: str | None, options: tuple[Option, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Parameters from a file; options override them. Raises ConfigError."""
    from evalq.evalcore.contract.params import load_mapping, option_params

    return option_params(options, given, load_mapping(file) if file else {})
