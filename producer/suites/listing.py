"""The cases of a suite's runs, before anything is evaluated or paid for."""

from __future__ import annotations

from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.fold.named import named_cases
from evalq.producer.suites.suite_file import PlannedRun

__all__ = ["listed_cases"]


def listed_cases(run: PlannedRun) -> list[str] | None:
    """The cases that ``run`` is about, sorted: of its input, or those that a target is asked; None where none can tell.

    Raises InputError, ConfigError, UsageError, OSError.
    """
    if run.live is not None:
        calls = live_calls(run.evaluator)
        if not run.live.target:
            return None  # what is asked about outputs says nothing of the outputs
        return sorted({prompt.case for prompt in calls.prompts(run.request)}) if calls.answers_suffice else None
    return named_cases(run.evaluator, run.evaluator.command.request(run.request), run.limit)
