"""Asking judges about a run's outputs, before they are evaluated: a sweep for each, below the run's folder.

Its prompts are made of the outputs, so that a question that was answered keeps its answer whatever else is asked. The
answers are joined to the lines of the outputs, and that file is evaluated.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from evalq.evalcore.contract.evaluator import JudgeStage, OutputQuestion, Stage, live_calls
from evalq.evalcore.errors import WireError
from evalq.evalcore.files import open_input, read_plain, replacing, write_atomic
from evalq.evalcore.model.calls import Output
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.version import code_version
from evalq.producer.folder.files import FURTHER, HEAD, OUTPUTS, PROMPTS, RECORDED, SETTLED
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.head import Before, SweepHead, prompts_digest, read_head
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep, read_prompts
from evalq.workers.ledger.calls import judge_sweep_id
from evalq.workers.ledger.sweep_model import SETTINGS, SweepHeader
from evalq.workers.targets.variable import canonical_name

_NEW, _OLD = ".new", ".old"


class TargetSettings(msgspec.Struct, frozen=True):
    """Under which settings a target is asked: their digest, and {key path: value} of `shown_settings`, if known."""

    config: str
    parts: dict[str, str] = {}


Settle = Callable[[Sequence[str]], Mapping[str, TargetSettings]]
"""Gives {target: its settings} of the targets that are to be asked."""


class JudgeSweep(Sweep):
    """Questions to one target about outputs of a run, each asked equally often."""

    _given: tuple[Stage, Sequence[RunFolder]] | None = None

    def write_outputs(self) -> None:
        """Nothing: what is recorded is joined to the outputs that it is about."""

    @property
    def outputs(self) -> Path:
        """The outputs that it asks about."""
        called = self.folder.path / OUTPUTS
        return called if called.is_file() else self.folder.path / RECORDED

    @property
    def settings(self) -> str:
        """The digest of the settings under which it asks."""
        return self.header.asked[SETTINGS]

    @property
    def settled(self) -> TargetSettings:
        """These settings, as far as they were known. Raises WireError."""
        path = self.files / SETTLED
        try:
            return msgspec.json.decode(read_plain(path), type=TargetSettings)
        except (OSError, msgspec.DecodeError) as error:
            raise WireError(f"{path} is damaged: {error}; start the sweep anew") from error

    def note_settings(self, settings: Mapping[str, str]) -> None:
        """Nothing: they are in a file of their own."""

    def settings_then(self) -> dict[str, str]:
        """The settings under which it began, as `shown_settings` has them; empty if they were not known."""
        return self.settled.parts

    @property
    def replies(self) -> int:
        """What it was answered, without calls that failed."""
        return self.recorded.count - self.recorded.errors

    def note_calls(self, facts: Mapping[str, Json]) -> None:
        """Keep how its calls ended, in run.json under ``further``."""
        # Of the run, not of this sweep alone: replies that it took over from the one before it are not free.
        sums = {name: facts[name] + more for name, more in msgspec.to_builtins(self.before).items()}
        known: dict[str, Json] = self.folder.facts().get("further") or {}
        self.folder.note(further={**known, self.files.name: {**facts, **sums}})

    def budget(self, calls: int, cost: float, cache: str) -> None:
        """What is left for it of the run's budgets (0: no bound), and the run's cache."""
        self.live = msgspec.structs.replace(self.live, max_calls=calls, max_cost=cost, cache=cache)

    @property
    def given_before(self) -> bool:
        """Whether runs that are reused may have replies."""
        return self._given is not None

    def give(self, stage: Stage, givers: Sequence[RunFolder]) -> None:
        """Take replies to what ``stage`` asks from other runs."""
        self._given = (stage, givers) if givers else None

    def recorded_elsewhere(self, config: str) -> Iterator[list[Output]]:
        """What was answered to the same questions, word for word. Raises WireError for a damaged file."""
        if self._given is None:
            return
        stage, givers = self._given
        numbers = {(prompt.case, prompt.digest): number for number, prompt in enumerate(self.prompts())}
        for giver in givers:
            replies = _replies(giver, stage, live_calls(self.evaluator).judge_stage, self.header.target)
            while some := list(islice(replies, _STEP)):
                yield [
                    msgspec.structs.replace(each, call=each.repeat * self.header.cases + number)
                    for each in some
                    if (number := numbers.get((each.case, each.prompt))) is not None
                    and (each.config, each.failed) == (config, False)
                    and each.repeat < self.header.repeats
                ]

    def refuse_nothing(self) -> None:
        """Not to be judged is no reason to evaluate nothing: what needs no answer has its result."""


class JudgeCalls:
    """What ``stage`` asks about the outputs of ``sweep``; made anew by whoever resumes, from the same outputs.

    ``settle`` gives the settings under which targets are asked: replies of others are not taken over.
    """

    def __init__(self, sweep: Sweep, stage: Stage, limit: int | None, settle: Settle) -> None:
        self._sweep = sweep
        self._stage = stage
        self._settle = settle
        self._limit = limit
        self._root = sweep.folder.path / FURTHER
        self._givers = [RunFolder(Path(run)) for run in sweep.live.reuse]
        self._groups = {group: number for number, group in enumerate(sorted(stage.count_questions()), start=1)}
        self._numbers: dict[bytes, tuple[int, int]] = {}
        self._sweeps: dict[int, JudgeSweep] = {}

    def prepare(self) -> list[JudgeSweep]:
        """The sweeps, with their prompts written down, and all that earlier ones were answered to the same.

        Raises what settling raises.
        """
        counts = self._write_prompts()
        asked = {canonical_name(target) for (target, _), number in self._groups.items() if counts[number]}
        settled = self._settle(sorted(asked)) if asked else {}
        for (target, repeats), number in self._groups.items():
            name = canonical_name(target)
            if counts[number]:
                self._sweeps[number] = self._begun(number, name, repeats, settled[name])
            else:
                shutil.rmtree(self._root / str(number), ignore_errors=True)
        for sweep in self._sweeps.values():
            sweep.give(self._stage, self._givers)
        return list(self._sweeps.values())

    def _write_prompts(self) -> dict[int, int]:
        """Every question once, in the order of the outputs; returns {group: prompts}."""
        counts = dict.fromkeys(self._groups.values(), 0)
        self._stage.prepare(lambda: islice(self._lines(), self._limit))
        self._numbers.clear()
        with contextlib.ExitStack() as stack:
            outs = {}
            for number in counts:
                # Beside the old prompts, which tell what of the replies is kept.
                path = self._root / f"{number}{_NEW}"
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir(parents=True)
                outs[number] = stack.enter_context(replacing(path / PROMPTS))
            for question in self._questions():
                key, number = _key(question), self._groups[question.target, question.repeats]
                if key not in self._numbers:
                    self._numbers[key] = (number, counts[number])
                    counts[number] += 1
                    outs[number].write(msgspec.json.encode(question.prompt) + b"\n")
        return counts

    def _questions(self) -> Iterator[OutputQuestion]:
        for line in islice(self._lines(), self._limit):
            yield from self._stage.questions(line)

    def _lines(self) -> Iterator[bytes]:
        with open_input(self._sweep.outputs) as stream:
            for line in stream:
                yield line.rstrip(b"\n")

    def _begun(self, number: int, target: str, repeats: int, settled: TargetSettings) -> JudgeSweep:
        """The sweep of one group: as it was left where it asks the same, else a new one with what is answered."""
        place, new = self._root / str(number), self._root / f"{number}{_NEW}"
        old = self._root / f"{number}{_OLD}"
        if not place.exists() and old.exists():
            old.rename(place)  # a process was killed between the two
        cases, digest, _ = prompts_digest(read_prompts(new / PROMPTS))
        # Under other settings it is another sweep to the ledger, which may still have the one of before.
        run = judge_sweep_id(self._sweep.run, f"{number}-{_digest_of(digest, settled.config)}")
        asked = {"prompts": digest, "about": self._sweep.run, SETTINGS: settled.config}
        header = SweepHeader(run, target, code_version(), cases, repeats, asked)
        before = self._before(place)
        if before is not None and before.header == header:
            shutil.rmtree(new)
            return before
        head = SweepHead(header, SweepOptions(target, repeats), *self._sweep.given)
        if before is not None:
            sums = _carry_over(before, JudgeSweep(self._sweep.folder, head, files=new))
            head = msgspec.structs.replace(head, before=sums)
        write_atomic(new / SETTLED, msgspec.json.encode(settled, order="sorted") + b"\n")
        # Last of its files: a folder without a head is no sweep yet.
        write_atomic(new / HEAD, head.to_wire())
        if before is not None:
            shutil.rmtree(old, ignore_errors=True)
            place.rename(old)
        new.rename(place)
        # What an earlier swap left: a folder cannot be renamed onto one that has files.
        shutil.rmtree(old, ignore_errors=True)
        return JudgeSweep(self._sweep.folder, head, files=place)

    def _before(self, place: Path) -> JudgeSweep | None:
        if not (place / HEAD).is_file():
            return None
        return JudgeSweep(self._sweep.folder, read_head(place, HEAD), files=place)

    def join(self, path: Path) -> None:
        """Write the outputs with what was recorded of them to ``path``."""
        with replacing(path) as out:
            for number, line in enumerate(self._lines()):
                asked = self._limit is None or number < self._limit
                out.write((self._stage.add_replies(line, self._answers) if asked else line) + b"\n")

    def _answers(self, question: OutputQuestion) -> list[Output]:
        group, number = self._numbers[_key(question)]
        sweep = self._sweeps[group]
        calls = (repeat * sweep.header.cases + number for repeat in range(sweep.header.repeats))
        return [output for call in calls if (output := sweep.recorded.get(call)) is not None]


def judge_sweeps(folder: RunFolder) -> list[JudgeSweep]:
    """Those that were begun in a run's folder. Raises WireError for damaged files."""
    # By number alone: what a swap leaves under its other names is no sweep.
    places = [path.parent for path in sorted((folder.path / FURTHER).glob(f"*/{HEAD}")) if path.parent.name.isdigit()]
    return [JudgeSweep(folder, read_head(place, HEAD), files=place) for place in places]


def _replies(giver: RunFolder, stage: Stage, judge_stage: JudgeStage | None, target: str) -> Iterator[Output]:
    """What another run recorded of ``target``: joined to its outputs and, where it came to no end, as it came in."""
    joined = None if judge_stage is None else giver.path / judge_stage.file
    if joined is not None and joined.is_file():
        with open_input(joined) as lines:
            for line in lines:
                yield from _answered(stage, line, joined)
    for each in judge_sweeps(giver):
        if each.header.target == target:
            yield from filter(None, map(each.recorded.get, each.recorded.calls()))


def _answered(stage: Stage, line: bytes, path: Path) -> Sequence[Output]:
    try:
        return stage.recorded_replies(line.rstrip(b"\n"))
    except msgspec.DecodeError as error:
        raise WireError(f"{path} is not what evalq writes: {error}") from error


def _digest_of(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]


def _key(question: OutputQuestion) -> bytes:
    identity = f"{question.target}\0{question.repeats}\0{question.prompt.case}"
    # Twelve bytes for a question of any length: all of them are in memory at once.
    return hashlib.blake2b(identity.encode(errors="surrogatepass"), digest_size=12).digest()


# Replies that a sweep takes over from the one that it replaces.

_STEP = 500


def _carry_over(before: Sweep, sweep: Sweep) -> Before:
    """What ``before`` recorded of questions that ``sweep`` asks again, word for word, of the same target as it was.

    Returns what was done up to and with ``before``, in attempts, calls and the targets' unit of cost.
    """
    paid = _taken_over(before, sweep) if _asked(before) == _asked(sweep) else 0
    recorded, so_far = before.recorded, before.before
    begun = max(recorded.begun, recorded.ended)  # one of the two counts may be older than the other
    return Before(
        so_far.attempts + begun,
        so_far.lost + begun - recorded.ended,  # no process will report the calls that were in flight
        so_far.repaid + max(0, recorded.paid - paid),
        so_far.cost + recorded.cost,
    )


def _asked(sweep: Sweep) -> tuple[str, str]:
    return sweep.header.target, sweep.header.asked[SETTINGS]


def _taken_over(before: Sweep, sweep: Sweep) -> int:
    """Take the replies over; returns how many of them ``before`` had paid for."""
    known = {(prompt.case, prompt.digest): number for number, prompt in enumerate(before.prompts())}
    kept: list[Output] = []
    paid = 0
    for number, prompt in enumerate(sweep.prompts()):
        earlier = known.get((prompt.case, prompt.digest))
        if earlier is None:
            continue
        for repeat in range(min(before.header.repeats, sweep.header.repeats)):
            call = repeat * before.header.cases + earlier
            output = before.recorded.get(call)
            # A call that failed is made again; replies are paid for once.
            if output is not None and not output.failed:
                kept.append(msgspec.structs.replace(output, call=repeat * sweep.header.cases + number))
                paid += not before.recorded.is_reused(call)
        # In steps: a sync for each reply takes long, and all of them at once take memory.
        if len(kept) >= _STEP:
            sweep.recorded.add(kept, cached=True)
            kept.clear()
    sweep.recorded.add(kept, cached=True)
    return paid
