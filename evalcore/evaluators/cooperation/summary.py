"""The command ``cooperation-report``: the seed's SUMMARY.md and report.json from a metrics.json."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.contract.evaluator import Command, Option
from evalq.evalcore.errors import InputError, UsageError
from evalq.evalcore.evaluators.cooperation.config import Experiment, load_experiment
from evalq.evalcore.evaluators.cooperation.markdown import log_tables, misfits, share, title
from evalq.evalcore.evaluators.cooperation.section import MetricsResult, pretty_json
from evalq.evalcore.files import open_input, write_atomic
from evalq.evalcore.views.markdown import escape

__all__ = ["COMMAND", "write_text"]


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
