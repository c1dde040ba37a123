"""What a sweep is to ask, looked at before anything is made or paid for it, and its prompts written down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract.evaluator import Evaluator, Request, Stage, live_calls
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.evalcore.files import open_input, replacing
from evalq.evalcore.model.calls import Prompt
from evalq.evalcore.version import code_version
from evalq.producer.folder.job import RunOptions, new_run_id
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweeps.identity import asked_of, once_id, prompts_digest
from evalq.producer.sweeps.options import SweepOptions
from evalq.producer.sweeps.reuse import Giver
from evalq.producer.sweeps.wording import prompts_of
from evalq.workers.ledger.sweep_model import SweepHeader

__all__ = ["PreparedSweep", "prepare", "read_prompts", "write_prompts"]


class PreparedSweep(NamedTuple):
    """A sweep that can begin: its header with the run's id, and what asks further targets, where anything does."""

    header: SweepHeader
    live: SweepOptions
    stage: Stage | None


def prepare(evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, asked: RunOptions) -> PreparedSweep:
    """Raises ConfigError, UsageError or InputError for what cannot be asked."""
    from evalq.workers.targets.variable import canonical_name  # brings what calls along, which looking at a run is not

    calls = live_calls(evaluator)
    live = msgspec.structs.replace(live, target=canonical_name(live.target))
    if live.stop and calls.stopping(request) is None:
        raise UsageError(f"--stop {live.stop}: {evaluator.name} has no rule by which a case is decided")
    if "-" in request.inputs:
        raise ConfigError("a live sweep needs inputs that can be read twice, not standard input")
    for path in live.reuse:  # one that gives nothing is told before anything is paid
        if live.target:
            Giver(path)
        else:
            RunFolder.existing(Path(path))
    stage = None
    if calls.further is not None:
        stage = calls.further.begin(request)  # raises where it is not said who is asked
    cases, digest = prompts_digest(prompts_of(evaluator, request, live)) if live.target else (1, "")
    if not cases:
        raise UsageError("there is nothing to ask: no case is left")
    facts = asked_of(evaluator, request, live, asked, digest)
    header = SweepHeader("", live.target, code_version(), cases, live.repeat, facts)
    run = once_id(asked.once, header) if asked.once else new_run_id(evaluator.name)
    return PreparedSweep(msgspec.structs.replace(header, run=run), live, stage)


def read_prompts(path: Path) -> Iterator[Prompt]:
    """The prompts that `write_prompts` wrote, in order."""
    with open_input(path) as stream:
        for line in stream:
            yield msgspec.json.decode(line, type=Prompt)


def write_prompts(path: Path, prompts: Iterator[Prompt]) -> None:
    """Write prompts down, a line each."""
    with replacing(path) as out:
        for prompt in prompts:
            out.write(msgspec.json.encode(prompt) + b"\n")
