"""Cooperation metrics of simulation logs: cooperation rate, contributions, recovery, Gini, entropy.

`CooperationEvaluator` is the seed's Python interface, over the same code as the command.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evalq.evalcore.contract.params import validate
from evalq.evalcore.errors import InputError
from evalq.evalcore.evaluators.cooperation.evaluator import Cooperation, evaluator
from evalq.evalcore.evaluators.cooperation.experiment import write_text
from evalq.evalcore.evaluators.cooperation.params import CooperationParams, Rules
from evalq.evalcore.evaluators.cooperation.report import MetricsResult, pretty_json
from evalq.evalcore.fold import evaluate_files

__all__ = [
    "Cooperation",
    "CooperationEvaluator",
    "CooperationParams",
    "EvaluationRules",
    "Evaluator",
    "MetricsResult",
    "Rules",
    "evaluator",
]

_DEFAULT = Rules()


@dataclass
class EvaluationRules:
    """Which decisions count, in any case, and which resource is contributed (seed 001, "Evaluation rules")."""

    cooperative_decisions: set[str] = field(default_factory=lambda: set(_DEFAULT.cooperative_decisions))
    betrayal_decisions: set[str] = field(default_factory=lambda: set(_DEFAULT.betrayal_decisions))
    resource_key: str = _DEFAULT.resource_key


class CooperationEvaluator:
    """Computes the metrics of one log.

        metrics = CooperationEvaluator(EvaluationRules(resource_key="wood")).evaluate("events.jsonl")

    Raises ConfigError for rules that are no sets of words.
    """

    def __init__(self, rules: EvaluationRules | None = None, *, skip_bad_lines: bool = False) -> None:
        self._params: dict[str, Any] = {"rules": _plain(rules or EvaluationRules()), "skip_bad_lines": skip_bad_lines}
        validate(CooperationParams, self._params, "rules")

    def evaluate(self, log_path: str | Path) -> MetricsResult:
        """The metrics of the log at ``log_path``, which may be empty.

        Raises InputError that lists the first bad lines, or says that there is no such file.
        """
        if Path(log_path).is_dir():
            raise InputError("no input", [(str(log_path), "a folder, not a log")])
        (entry,) = evaluate_files(evaluator, log_path, self._params).report["results"]["logs"].values()
        return MetricsResult(**entry)

    def save(self, metrics: MetricsResult, out_path: str | Path) -> None:
        """Write ``metrics`` to ``out_path`` as metrics.json."""
        write_text(Path(out_path), pretty_json(metrics.to_dict()))


def _plain(rules: EvaluationRules) -> dict[str, Any]:
    words: dict[str, Any] = {
        "cooperative_decisions": rules.cooperative_decisions,
        "betrayal_decisions": rules.betrayal_decisions,
    }
    # A string stays one, and validation refuses it: nobody means the set of its letters.
    lists = {key: value if isinstance(value, str) else list(value) for key, value in words.items()}
    return {**lists, "resource_key": rules.resource_key}


Evaluator = CooperationEvaluator
"""The seed's name for `CooperationEvaluator`."""
