"""The seed's experiment configuration, and its command cooperation-report.

evalq reads only the section ``evaluation`` and some keys of ``experiment``; the rest belongs to the simulation.
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
    """The keys that evalq reads. Simulations add their own (max_turns, endpoint, ...), so others are ignored."""

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
    """The facts and the files of an experiment; paths in a configuration are relative to its folder.

    ``rules`` has the keys that the configuration gives, as plain data.
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
    """Read a configuration file; the default for metrics.json is next to it.

    Raises ConfigError that names the file and the key path, and UsageError for a ``used`` path that it may not choose.
    The other paths do not matter: the command line replaces them.
    """
    loaded = load_mapping(path)
    # An empty section is null in YAML.
    sections = {key: loaded[key] for key in _Configuration.model_fields if loaded.get(key) is not None}
    config = validate(_Configuration, sections, str(path))
    experiment, folder = config.experiment, Path(path).parent
    for key in used:
        _refuse_outside(f"{path}: experiment.{key}", folder, getattr(experiment, key))
    return Experiment(
        name=experiment.name,
        seed=experiment.seed,
        dry_run=experiment.dry_run,
        log=str(folder / experiment.log_path) if experiment.log_path else None,
        metrics=folder / (experiment.metrics_path or "metrics.json"),
        summary=folder / experiment.summary_path if experiment.summary_path else None,
        report=folder / experiment.report_path if experiment.report_path else None,
        rules=config.evaluation.model_dump(mode="json", exclude_unset=True),
    )


def _refuse_outside(where: str, folder: Path, named: str | None) -> None:
    """Raise UsageError for a file outside the folder: a configuration may come from a pull request.

    Output files are refused, too: they must not overwrite files elsewhere.
    """
    # All files of a pattern or a folder, with links followed.
    for file in stands_for(str(folder / named)) if named else ():
        then = "a configuration can name only files in its folder or below it; name this one on the command line"
        refuse(Writer.CASES_FILE, Thing.PATH, file, where, then, (folder,))


def complete(request: Request) -> Request:
    """``request`` with the log, rules, dry-run flag and metrics file of its configuration and its options.

    Rules: the configuration's ``evaluation``, the params, and ``--rules``; each overrides the one before, key by key.
    In the returned options, ``out`` is the file for metrics.json, or None. Raises ConfigError, UsageError.
    """
    options = request.options
    used = (
        *(() if options.get("log") or request.inputs else ("log_path",)),
        *(() if options.get("out") else ("metrics_path",)),
    )
    experiment = load_experiment(options["config"], used) if options.get("config") else None
    inputs = _inputs(request, experiment)
    params: dict[str, Any] = {}
    if experiment is not None:
        params = {"rules": experiment.rules}
        if experiment.dry_run is not None:
            params["dry_run"] = experiment.dry_run
    params = merged(params, request.params)
    # Without the flag, the configuration decides, and then the log.
    if options.get("log_dry_run"):
        params["dry_run"] = True
    if options.get("rules"):
        params = merged(params, {"rules": _rules_file(options["rules"])})
    out = options.get("out") or (str(experiment.metrics) if experiment else None)
    if out and _several(inputs):
        raise UsageError(f"{out} takes the metrics of one log, but there are several: evaluate them one by one")
    return Request(inputs, params, {**options, "out": out})


def _several(inputs: list[str]) -> bool:
    with suppress(InputError):  # with --follow, the log may not exist yet; otherwise reading it reports the error
        return len(discover(inputs, format_suffixes("jsonl"))) > 1
    return len(inputs) > 1


def _inputs(request: Request, experiment: Experiment | None) -> list[str]:
    log = request.options.get("log")
    if log and request.inputs:
        raise UsageError("give the log either as an argument or by --log, not both")
    if log or request.inputs:
        return [log] if log else request.inputs
    if experiment is None:
        raise UsageError("no log: name one, or a configuration with --config")
    if experiment.log is None:
        raise UsageError("no log: the configuration has no experiment.log_path, so name one with --log")
    return [experiment.log]


def _rules_file(path: str) -> dict[str, Any]:
    # Only the keys in the file: defaults would override the configuration (SPEC, section 2).
    return validate(Rules, load_mapping(path), path).model_dump(mode="json", exclude_unset=True)


# The command ``cooperation-report``: the seed's SUMMARY.md and report.json from a metrics.json.


def write_summary(options: Mapping[str, Any]) -> str:
    """Write both files, by default next to metrics.json; return a line that names them.

    Raises UsageError, ConfigError, and InputError for missing or unreadable metrics.
    """
    config = options.get("config")
    if not config:
        raise UsageError("cooperation-report needs --config C, the experiment's configuration file")
    named = {"metrics_path": "metrics", "summary_path": "summary", "report_path": "report"}
    experiment = load_experiment(config, [key for key, option in named.items() if not options.get(option)])
    source = Path(options.get("metrics") or experiment.metrics)
    metrics = _load(source, config)
    # Not in the run's folder, which has another report.json (SPEC, section 2).
    summary = Path(options.get("summary") or experiment.summary or source.parent / "SUMMARY.md")
    report = Path(options.get("report") or experiment.report or source.parent / "report.json")
    name, entry = escape(experiment.name or source.parent.name), metrics.to_dict()
    write_text(
        summary,
        f"{title(f'Cooperation metrics: {name}', misfits(entry, 'the log'))}\n\n{log_tables(entry)}",
    )
    # From metrics.json alone: as in the seed, this command reads no log.
    write_text(report, pretty_json(_report(experiment, metrics)))
    return f"wrote {summary} and {report} from {source}"


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, and create its folders."""
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
    contributions, counts = entry.pop("contributions"), entry.pop("message_counts")
    metadata = entry.pop("metadata")
    messages, contributed = sum(counts.values()), sum(contributions.values())
    return {
        "experiment": {"name": experiment.name, "seed": experiment.seed, "dry_run": metadata.get("dry_run")},
        "metrics": entry,
        "agents": [
            {
                "agent": name,
                "messages": counts[name],
                "message_share": share(counts[name], messages),
                "contribution": contributions[name],
                "contribution_share": share(contributions[name], contributed),
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
