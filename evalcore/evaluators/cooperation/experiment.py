"""The seed's experiment configuration, and its command cooperation-report.

Only the sections ``experiment`` and ``evaluation`` are read, and of ``experiment`` only the keys named here: all else
belongs to the simulation.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ConfigDict

from evalq.evalcore.contract.evaluator import Command, Option, Params, Request
from evalq.evalcore.contract.params import load_mapping, merged, validate
from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.evaluators.cooperation.params import Rules
from evalq.evalcore.evaluators.cooperation.report import MetricsResult, pretty_json
from evalq.evalcore.evaluators.cooperation.views import log_tables, misfits, share, title
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.records.inputs import discover, format_suffixes, stands_for
from evalq.evalcore.trust import Thing, Writer, refuse
from evalq.evalcore.views.markdown import escape

_FILES = ("log_path", "metrics_path", "summary_path", "report_path")


class _Experiment(Params):
    """What is read of the section; simulations keep keys of their own in it (max_turns, endpoint, ...)."""

    # Unlike anywhere else: the simulation's own keys live in this section, too.
    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    seed: int | str | None = None
    dry_run: bool | None = None
    log_path: str | None = None
    metrics_path: str | None = None
    summary_path: str | None = None
    report_path: str | None = None


class _Configuration(Params):
    experiment: _Experiment = _Experiment()
    evaluation: Rules = Rules()


class Experiment(msgspec.Struct, frozen=True):
    """An experiment's facts, and its files' paths (those of the configuration are relative to its own folder).

    ``rules`` holds the keys that the configuration gives, in plain data.
    """

    name: str | None
    seed: int | str | None
    dry_run: bool | None
    log: str | None
    metrics: Path
    summary: Path | None
    report: Path | None
    rules: dict[str, Any]


def load_experiment(path: str | Path, used: Collection[str] = _FILES) -> Experiment:
    """Read a configuration file; metrics.json lies next to it unless it says otherwise.

    Raises ConfigError that names the file and the key path, and UsageError for a file that it may not choose,
    among those that are ``used``: for the others the command line names one.
    """
    loaded = load_mapping(path)
    # Null is what YAML makes of a section with nothing below it.
    sections = {key: loaded[key] for key in _Configuration.model_fields if loaded.get(key) is not None}
    config = validate(_Configuration, sections, str(path))
    own, folder = config.experiment, Path(path).parent
    for key in used:
        _refuse_outside(f"{path}: experiment.{key}", folder, getattr(own, key))
    return Experiment(
        name=own.name,
        seed=own.seed,
        dry_run=own.dry_run,
        log=str(folder / own.log_path) if own.log_path else None,
        metrics=folder / (own.metrics_path or "metrics.json"),
        summary=folder / own.summary_path if own.summary_path else None,
        report=folder / own.report_path if own.report_path else None,
        rules=config.evaluation.model_dump(mode="json", exclude_unset=True),
    )


def _refuse_outside(where: str, folder: Path, named: str | None) -> None:
    """Raise UsageError for a file that a configuration may not choose: it may be anybody's, as in a pull request.

    Also for one that is only written: it must not take the place of what lies elsewhere.
    """
    # Of a pattern or a folder all that it stands for, links followed.
    for file in stands_for(str(folder / named)) if named else ():
        then = "it names files in its own folder, or below it; name this one on the command line"
        refuse(Writer.CASES_FILE, Thing.PATH, file, where, then, (folder,))


def completed(asked: Request) -> Request:
    """``asked`` with the log, rules, dry-run flag and metrics file that its configuration and its options name.

    Rules: the configuration's ``evaluation``, then the params, then ``--rules``, each over the last, key by key.
    In the answer's options ``out`` is the file for metrics.json, or None. Raises ConfigError, UsageError.
    """
    options = asked.options
    used = (
        *(() if options.get("log") or asked.inputs else ("log_path",)),
        *(() if options.get("out") else ("metrics_path",)),
    )
    experiment = load_experiment(options["config"], used) if options.get("config") else None
    inputs = _inputs(asked, experiment)
    params: dict[str, Any] = {}
    if experiment is not None:
        params = {"rules": experiment.rules}
        if experiment.dry_run is not None:
            params["dry_run"] = experiment.dry_run
    params = merged(params, asked.params)
    # The flag says yes or nothing; where it is silent the configuration decides, and then the log.
    if options.get("log_dry_run"):
        params["dry_run"] = True
    if options.get("rules"):
        params = merged(params, {"rules": _rules_file(options["rules"])})
    out = options.get("out") or (str(experiment.metrics) if experiment else None)
    if out and _several(inputs):
        raise UsageError(f"{out} takes the metrics of one log, but there are several: evaluate them one by one")
    return Request(inputs, params, {**options, "out": out})


def _several(inputs: list[str]) -> bool:
    with suppress(InputError):  # a log that is not there yet can be followed; else it is missed where it is read
        return len(discover(inputs, format_suffixes("jsonl"))) > 1
    return len(inputs) > 1


def _inputs(asked: Request, experiment: Experiment | None) -> list[str]:
    log = asked.options.get("log")
    if log and asked.inputs:
        raise UsageError("give the log either as an argument or by --log, not both")
    if log or asked.inputs:
        return [log] if log else asked.inputs
    if experiment is None:
        raise UsageError("no log: name one, or a configuration with --config")
    if experiment.log is None:
        raise UsageError("no log: the configuration has no experiment.log_path, so name one with --log")
    return [experiment.log]


def _rules_file(path: str) -> dict[str, Any]:
    # Only the keys that the file gives: the others would put the defaults over the configuration's (SPEC, section 2).
    return validate(Rules, load_mapping(path), path).model_dump(mode="json", exclude_unset=True)


# The command ``cooperation-report``: the seed's SUMMARY.md and report.json from a metrics.json.


def write_summary(options: Mapping[str, Any]) -> str:
    """Write both files; they lie next to metrics.json unless an option or the configuration names a path.

    Returns a line that says what was written. Raises UsageError, ConfigError, and InputError for metrics that are
    not there or not readable.
    """
    config = options.get("config")
    if not config:
        raise UsageError("cooperation-report needs --config C, the experiment's configuration file")
    named = {"metrics_path": "metrics", "summary_path": "summary", "report_path": "report"}
    experiment = load_experiment(config, [key for key, option in named.items() if not options.get(option)])
    source = Path(options.get("metrics") or experiment.metrics)
    metrics = _load(source, config)
    # Beside metrics.json and not in the run's folder, where evalq's own report.json is (SPEC, section 2).
    summary = Path(options.get("summary") or experiment.summary or source.parent / "SUMMARY.md")
    report = Path(options.get("report") or experiment.report or source.parent / "report.json")
    name, entry = escape(experiment.name or source.parent.name), metrics.to_dict()
    write_text(
        summary,
        f"{title(f'Cooperation metrics: {name}', misfits(entry, 'the log'))}\n\n{log_tables(entry)}",
    )
    # From metrics.json alone, as the seed's two commands have it: this one reads no log.
    write_text(report, pretty_json(_report(experiment, metrics)))
    return f"wrote {summary} and {report} from {source}"


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())


def _load(path: Path, config: str) -> MetricsResult:
    try:
        with open_input(path) as stream:
            return msgspec.json.decode(stream.read(), type=MetricsResult)
    except FileNotFoundError:
        hint = f"not there; run `evalq cooperation --config {shlex.quote(config)}` first"
        raise InputError("no metrics to report on", [(str(path), hint)]) from None
    except (OSError, ValueError) as error:
        raise InputError("no metrics to report on", [(str(path), f"not a metrics.json: {error}")]) from None


def _report(experiment: Experiment, metrics: MetricsResult) -> dict[str, Any]:
    entry = metrics.to_dict()
    given, counts = entry.pop("contributions"), entry.pop("message_counts")
    metadata = entry.pop("metadata")
    messages, contributed = sum(counts.values()), sum(given.values())
    return {
        "experiment": {"name": experiment.name, "seed": experiment.seed, "dry_run": metadata.get("dry_run")},
        "metrics": entry,
        "agents": [
            {
                "agent": name,
                "messages": counts[name],
                "message_share": share(counts[name], messages),
                "contribution": given[name],
                "contribution_share": share(given[name], contributed),
            }
            for name in sorted(counts)
        ],
        "metadata": metadata,
    }


COMMAND = Command(
    "cooperation-report",
    "Write SUMMARY.md and report.json from an experiment's metrics.json.",
    (
        Option(("--config",), "the experiment's configuration (YAML)", "path"),
        Option(("--metrics",), "metrics.json to read, in place of the configuration's"),
        Option(("--summary",), "where to write SUMMARY.md"),
        Option(("--report",), "where to write report.json"),
    ),
    write_summary,
)
