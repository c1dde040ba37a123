"""The planned calls of a suite's runs, before anything is paid for, and targets that cannot be called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.contract.plugins import stdout_to_stderr
from evalq.evalcore.errors import UsageError
from evalq.evalcore.fold import case_names
from evalq.evalcore.views.markdown import plural, table, visible
from evalq.producer.suites.suite_file import PlannedRun, SuitePlan
from evalq.producer.sweep.callers import Callers
from evalq.producer.sweep.estimate import asks_of
from evalq.producer.sweep.options import prompts_of
from evalq.workers.targets.variable import canonical_name


@stdout_to_stderr()
def listed_cases(run: PlannedRun) -> list[str] | None:
    """The cases of ``run``, sorted: those of its input, or of the calls to its target; None if they are unknown.

    Raises InputError, ConfigError, UsageError, OSError.
    """
    if run.live is not None:
        calls = live_calls(run.evaluator)
        if not run.live.target:
            return None  # calls about outputs do not say which cases there are
        return sorted({prompt.case for prompt in calls.prompts(run.request)}) if calls.answers_suffice else None
    return case_names(run.evaluator, run.evaluator.command.request(run.request), run.limit)


class PlannedCalls(msgspec.Struct, frozen=True):
    """A run that a suite would begin: at most ``calls``, each of ``cases`` ``repeat`` times; none without a target.

    ``about`` are at most so many calls about its outputs, such as those of judges.
    """

    name: str
    evaluator: str
    target: str = ""
    cases: int = 0
    repeat: int = 0
    calls: int = 0
    about: int = 0


@stdout_to_stderr()
def planned_calls(suite: SuitePlan) -> list[PlannedCalls]:
    """The calls that the runs of ``suite`` would make. Raises what reading their cases raises."""
    found = []
    for run in suite.runs:
        planned = PlannedCalls(run.called, run.evaluator.name)
        if (live := run.live) is not None and live.target:
            cases = sum(1 for _ in prompts_of(run.evaluator, run.request, live))
            planned = PlannedCalls(run.called, run.evaluator.name, live.target, cases, live.repeat, cases * live.repeat)
        found.append(msgspec.structs.replace(planned, about=_judge_calls(run)))
    return found


def _judge_calls(run: PlannedRun) -> int:
    judge_stage = live_calls(run.evaluator).judge_stage if run.live is not None else None
    stage = judge_stage.begin(run.request) if judge_stage is not None else None
    if run.live is None or stage is None:
        return 0
    asks = asks_of(run.evaluator, run.request, stage, run.live)
    return sum(questions * votes for (_, votes), questions in asks.items())


def planned_text(runs: Sequence[PlannedCalls]) -> str:
    """A table row for each run, and the number of calls."""
    lines: list[tuple[object, ...]] = []
    head, judged = ("run", "evaluator", "target", "cases x repeats", "calls"), any(run.about for run in runs)
    for run in runs:
        shown = (f"{run.cases:,} x {run.repeat:,}", f"{run.calls:,}") if run.target else ("", "")
        about = (f"{run.about:,}" if run.about else "",) if judged else ()
        lines.append((run.name, run.evaluator, run.target, *shown, *about))
    calls = sum(run.calls + run.about for run in runs)
    return visible(
        table((*head, "about the outputs") if judged else head, lines)
        + f"\n{plural(len(runs), 'run')}, {plural(calls, 'call')} at most\n"
    )


# Whether all targets of a suite can be called; checked before the first call, since a matrix may have 200 runs.


def refuse_uncallable(suite: SuitePlan, callers: Callers) -> None:
    """Raise UsageError that names each run whose target cannot be called: it is unknown, has no price for the budget,
    or does not list a chosen parameter. A fleet without callers is no fault yet.
    """
    judges: dict[bytes, list[str]] = {}
    faults = []
    for run in suite.runs:
        try:
            for target in _targets(run, judges):
                callers.facts(target, priced=bool(run.live and run.live.max_cost))
        except UsageError as error:
            faults.append(f"{run.called}: {error}")
    if faults:
        raise UsageError("\n  ".join(faults))


def _targets(run: PlannedRun, judges: dict[bytes, list[str]]) -> Iterator[str]:
    """The targets of a run, for outputs and about them; ``judges`` caches the judges of requests."""
    if run.live is None:
        return
    if run.live.target:
        yield canonical_name(run.live.target)
    judge_stage = live_calls(run.evaluator).judge_stage
    if judge_stage is None:
        return
    request = msgspec.json.encode(run.request, enc_hook=str)
    if request not in judges:
        stage = judge_stage.begin(run.request)
        judges[request] = (
            sorted({canonical_name(name) for name, _ in stage.count_questions()}) if stage is not None else []
        )
    yield from judges[request]
