"""Outputs that earlier runs recorded, taken into a sweep that asks the same: paid for once, and told of as theirs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from evalq.evalcore.errors import UsageError, WireError
from evalq.evalcore.files import open_input, read_plain
from evalq.evalcore.model.calls import Lineage, Output, Prompt
from evalq.producer.folder.call_log import UNANSWERED
from evalq.producer.folder.files import OUTPUTS
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweeps.options import SweepOptions

__all__ = ["Giver", "lineage_of"]

# Each step is synced: single outputs would take long, and all at once would take memory.
_STEP = 500


class Giver:
    """The run in a folder whose outputs are taken. Raises UsageError where it has none."""

    def __init__(self, path: str) -> None:
        self.folder = RunFolder.existing(Path(path))
        self.run = self.folder.info().run
        self.otherwise = 0
        """Outputs of the same questions that were of other settings of the target, and so not taken."""
        if not self._outputs.is_file():
            info = self.folder.info()
            raise UsageError(
                f"{path}: no output of this run can be taken: it is {info.state} and has no {OUTPUTS}; "
                f"{self.folder.next_step(info.state)}"
            )

    def taken(
        self,
        prompts: Sequence[Prompt],
        live: SweepOptions,
        config: str,
        has: Callable[[int], bool] = lambda call: False,
    ) -> Iterator[list[Output]]:
        """Its outputs that a sweep of ``prompts`` wants and ``has`` not, under settings of the digest ``config``; some
        at a time.

        Of failures those alone that were the agent's, unless the sweep extends this very run: then it has them all.
        Raises WireError for a damaged file.
        """
        # By the words, too: a case may have another question by now under the id of then.
        numbers = {(prompt.case, prompt.digest): number for number, prompt in enumerate(prompts)}
        step: list[Output] = []
        for output in self._read():
            number = numbers.get((output.case, output.prompt))
            if number is None or output.target != live.target or output.repeat >= live.repeat:
                continue
            call = output.repeat * len(prompts) + number
            if output.config != config:
                self.otherwise += 1
            # An extension takes failures, too: asked again alone they would have a chance that successes do not get.
            elif not has(call) and (live.extends == self.run or not _unanswered(output)):
                step.append(msgspec.structs.replace(output, call=call))
            if len(step) == _STEP:
                yield step
                step = []
        yield step

    def _read(self) -> Iterator[Output]:
        with open_input(self._outputs) as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield Output.of_line(line)
                except WireError as error:
                    raise WireError(f"{self._outputs}:{number}: {error}") from error

    @property
    def _outputs(self) -> Path:
        return self.folder.own(OUTPUTS)

    @property
    def lineage(self) -> Lineage | None:
        """Whose outputs it took itself."""
        return self.folder.info().lineage

    @property
    def report(self) -> str:
        """The digest of its report, by which a comparison knows it; empty while it has none."""
        if not self.folder.reported:
            return ""
        return hashlib.sha256(read_plain(self.folder.path / "report.json")).hexdigest()


def lineage_of(givers: Mapping[str, Giver], reused: Counter[str]) -> Lineage | None:
    """What is told of a run that took so many outputs of each of ``givers``; None where it took none."""
    taken = {run: count for run, count in reused.items() if run and count > 0}
    if not taken:
        return None
    akin, number, first = set(taken), 1, ""
    # By count and name: what is told must not depend on the order in which runs were named.
    for run in sorted(taken, key=lambda run: (-taken[run], run)):
        giver = givers[run]
        before = giver.lineage
        akin |= set(before.akin) if before else set()
        number = max(number, 1 + (before.number if before else 0))
        first = first or (before.first if before else "") or giver.report
    return Lineage(taken, tuple(sorted(akin)), number, first)


def _unanswered(output: Output) -> bool:
    return output.error.partition(":")[0] in UNANSWERED
