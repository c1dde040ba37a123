"""A sweep in its run folder: its target, its prompts and the outputs recorded so far.

`sweep.json` is the head, `prompts.jsonl` has one prompt per case, and `calls.jsonl` has the outputs in the order of
their arrival. When the calls are over, `outputs.jsonl` has them by case and repeat, and an ordinary job evaluates it.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Evaluator, Request, Stage, inputs_of, live_calls, plain_input
from evalq.evalcore.errors import ConfigError, InputError, NothingEvaluated, UsageError, WireError
from evalq.evalcore.files import open_input, replacing, write_atomic
from evalq.evalcore.model.calls import Output, Prompt, StopNote
from evalq.evalcore.model.canonical import Json
from evalq.evalcore.model.manifest import Header
from evalq.evalcore.naming import shorten
from evalq.evalcore.records.cut import batches, opened
from evalq.evalcore.records.inputs import MAX_UNPACKED_BYTES
from evalq.evalcore.version import code_version
from evalq.producer.folder.call_log import LastDriver, RecordedOutputs
from evalq.producer.folder.documents import request_fact
from evalq.producer.folder.files import ASKED, CALLS, DRIVER, FURTHER, HEAD, OUTPUTS, PROMPTS, RECORDED, RESERVE
from evalq.producer.folder.job import Job, RunExistsError, RunOptions, begin_folder, new_run_id, planned_header
from evalq.producer.folder.own_runs import allow_for_process, named_paths, record
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.head import (
    SweepHead,
    once_id,
    prompts_digest,
    read_head,
    refuse_changed,
    remove,
    settings_of_run,
    sweep_facts,
)
from evalq.producer.sweep.options import SweepOptions, prompts_of
from evalq.producer.sweep.reuse import SourceRun
from evalq.workers.ledger.sweep_model import SETTINGS, SIMULATED, USER, SweepHeader

_FEW, _CASES_SHOWN = 4, 5
"""At most one case in four lacks outputs: then they are named, so many of them."""


class Sweep:
    """One sweep; `start` or `load` make it."""

    def __init__(self, folder: RunFolder, head: SweepHead, *, new: bool = False, files: Path | None = None) -> None:
        """``files`` is the folder for its questions and outputs, by default the run folder itself."""
        self.folder = folder
        self.files = files or folder.path
        self.new = new
        """Whether this process started it, so that no other process can have recorded an output."""
        self.spent = False
        """Whether its budget ended it; with a larger one, a resume makes the remaining calls."""
        self.further_left = False
        """Whether judges failed at some questions, or have not been asked all of them."""
        self.header = head.header
        self.before = head.before
        self.live = head.live
        self._asked = head.asked
        self._cwd = head.cwd
        self.request = head.request
        self.evaluator: Evaluator[Any, Any] = plugins.get(folder.info().evaluator)
        self.recorded = RecordedOutputs(self.files / CALLS, head.header.total)

    @property
    def run(self) -> str:
        """The run's id."""
        return self.header.run

    @classmethod
    def start(
        cls,
        evaluator: Evaluator[Any, Any],
        request: Request,
        live: SweepOptions,
        asked: RunOptions,
        origin: str = "",
    ) -> Sweep:
        """A new sweep with its prompts in a new folder; ``origin`` is the run whose cases it repeats.

        Raises ConfigError, UsageError or InputError, and leaves no folder then; RunExistsError for --once.
        """
        header, live, stage = _prepare(evaluator, request, live, asked)
        head = SweepHead(header, live, asked, request, str(Path.cwd()))

        def fill(folder: RunFolder) -> RunFolder:
            if live.target:
                _write_prompts(folder.path / PROMPTS, prompts_of(evaluator, request, live))
            else:
                _gather(evaluator, request, folder, asked.unpack_bytes)
            # Write run.json last: it turns the folder into a run.
            folder.write(HEAD, head.to_wire())
            folder.note(
                run=header.run,
                evaluator=evaluator.name,
                state="calling",
                epoch=0,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                tags=asked.tags,
                suite=asked.suite,
                name=asked.name,
                **({live_calls(evaluator).option: live.target} if live.target else {}),
                origin=origin or None,
                request=request_fact(request),
            )
            record(folder, named_paths(evaluator.name, request, live.cache, live.reuse))
            return folder

        try:
            made = cls(begin_folder(asked, evaluator.name, header.run, fill), head, new=True)
        except RunExistsError:
            allow_for_process(named_paths(evaluator.name, request, live.cache, live.reuse))
            raise
        made.stage = stage
        return made

    @classmethod
    def asked_in(cls, folder: RunFolder, *, same: bool = True) -> Sweep | None:
        """The sweep of ``folder``, finished or not, to call it `again`; None if the folder has no sweep.

        It may be of another code version. Raises WireError for damaged files, and with ``same`` also ConfigError if
        its inputs have changed.
        """
        for name in (HEAD, ASKED):
            if (folder.path / name).is_file():
                head = read_head(folder.path, name)
                if same:
                    refuse_changed(folder, head)
                return cls(folder, head)
        return None

    @classmethod
    def load(cls, folder: RunFolder) -> Sweep:
        """The unfinished sweep in ``folder``. Raises WireError for damaged files.

        Raises ConfigError for a sweep of another code version, and if its inputs have changed or are gone.
        """
        head = read_head(folder.path, HEAD)
        if head.header.code != code_version():
            outputs = folder.path / OUTPUTS  # exists when the calls are over
            recorded = (
                f"evaluate what it recorded: --outputs {shlex.quote(str(outputs))}"
                if outputs.is_file()
                else "start a new one"
            )
            raise ConfigError(
                f"{folder.path}: the sweep was begun by evalq code {head.header.code}, this is {code_version()}; "
                f"resume it with that version, or {recorded}"
            )
        refuse_changed(folder, head)
        return cls(folder, head)

    def again(self, target: str, once: str) -> Sweep:
        """A new sweep of the same cases that calls ``target``, without a cache and without a stop rule.

        Its suite is "NAME-confirm", and its key ``once``. Raises what `start` raises; RunExistsError if a sweep with
        the key exists.
        """
        budgets = {"max_calls": self.live.max_calls, "max_cost": self.live.max_cost}
        # No stop rule: it would bias the comparison of the two sides.
        live = msgspec.structs.replace(self.live.asking(target, self.live.repeat), stop="", **budgets)
        suite, tags = f"{self._asked.suite}-confirm", {**self._asked.tags, "confirms": self.run}
        asked = msgspec.structs.replace(self._asked, out=None, under=None, suite=suite, tags=tags, once=once)
        return Sweep.start(self.evaluator, self.request, live, asked)

    def request_of(self, inputs: Sequence[str]) -> Request:
        """The sweep's request, with ``inputs`` in place of its own if there are any."""
        return msgspec.structs.replace(self.request, inputs=list(inputs)) if inputs else self.request

    def budgeted(self, max_calls: int | None, max_cost: float | None) -> None:
        """Change the budgets, and write them to the folder; None keeps one."""
        given = (("max_calls", max_calls), ("max_cost", max_cost))
        if chosen := {name: value for name, value in given if value is not None}:
            self.live = msgspec.structs.replace(self.live, **chosen)
            head = SweepHead(self.header, self.live, self._asked, self.request, self._cwd, self.before)
            write_atomic(self.files / HEAD, head.to_wire())

    def prompts(self) -> Iterator[Prompt]:
        """One prompt per case, in order."""
        return read_prompts(self.files / PROMPTS)

    def kept_text(self) -> str:
        """How many outputs are recorded; if few cases lack theirs, which, and how to give them up."""
        recorded, header = self.recorded, self.header
        text = f"{recorded.count:,} of {header.total:,} outputs are recorded and kept"
        lacking = Counter(call % header.cases for call in range(header.total) if not recorded.has(call))
        if not lacking or len(lacking) * _FEW > header.cases:
            return text
        shown = sorted(lacking)[:_CASES_SHOWN]
        names = [f"{shorten(prompt.case)} ({lacking[number]})" for number, prompt in enumerate(self.prompts())
                 if number in shown]  # fmt: skip
        more = f" and {len(lacking) - len(shown)} more" if len(lacking) > len(shown) else ""
        return (
            f"{text}; cases that lack outputs: {', '.join(names)}{more}. If the target fails for these alone, its "
            "`case_budget` gives them up"
        )

    @property
    def last_driver(self) -> LastDriver:
        """The note of the last driver of the sweep in this folder."""
        return LastDriver(self.folder.path, self.files)

    @property
    def priority(self) -> str:
        """The queue class of its run."""
        return self._asked.priority

    @property
    def outputs(self) -> Path:
        """The file of outputs: outputs.jsonl, or without a target the recorded outputs that judges are asked about."""
        return self.files / (OUTPUTS if self.live.target else RECORDED)

    @property
    def evaluated(self) -> Path:
        """The file that the run evaluates: the outputs, or a copy of them with the judges' replies."""
        judge_stage = live_calls(self.evaluator).judge_stage
        return self.files / judge_stage.file if judge_stage is not None and self.stage is not None else self.outputs

    @cached_property
    def stage(self) -> Stage | None:
        """The stage that asks judges about the outputs; None without one. Raises UsageError or ConfigError."""
        judge_stage = live_calls(self.evaluator).judge_stage
        return None if judge_stage is None else judge_stage.begin(self.request)

    @property
    def given(self) -> tuple[RunOptions, Request, str]:
        """The command's options, its request, and the folder that it was started in."""
        return self._asked, self.request, self._cwd

    @property
    def given_before(self) -> bool:
        """Whether other runs may have some of the outputs, which `recorded_elsewhere` then gives."""
        return False

    def recorded_elsewhere(self, config: str) -> Iterator[list[Output]]:
        """Outputs of other runs for the target's settings ``config`` (a digest), in blocks."""
        return iter(())

    def refuse_nothing(self) -> None:
        """Raise NothingEvaluated if no call has an output."""
        if not self.recorded.count:
            raise NothingEvaluated(
                "nothing was called: the budget allows no call; give a larger one (--max-calls, --max-cost)"
            )

    @property
    def stop_note(self) -> StopNote | None:
        """The note on the stop rule in each output; None without a rule."""
        return StopNote(self.live.stop, self.header.repeats) if self.live.stop else None

    def note_settings(self, settings: Mapping[str, str]) -> None:
        """Keep the settings of its target in run.json, so that an error can name those that changed."""
        if settings and SETTINGS not in self.folder.facts():
            self.folder.note(**{SETTINGS: dict(settings)})

    def settings_then(self) -> dict[str, str]:
        """The settings of the target when the run that this one extends was asked; empty if they are not known."""
        return settings_of_run(self.live.reuse[0]) if self.live.reuse else {}

    def note_calls(self, facts: Mapping[str, Json]) -> None:
        """Write to run.json how the calls ended, and how many outputs come from earlier runs.

        An output that was made again counts as this run's own.
        """
        lineage, reused = self.folder.info().lineage, self.recorded.reused
        if lineage is not None:
            lineage = msgspec.structs.replace(lineage, reused={run: reused[run] for run in lineage.reused})
        self.folder.note(calls=facts, lineage=msgspec.to_builtins(lineage))

    def write_outputs(self) -> None:
        """Write all recorded outputs to outputs.jsonl, by case and repeat."""
        if not self.live.target:
            return
        with replacing(self.outputs) as out:
            for call in self.header.by_case():
                if (output := self.recorded.get(call)) is not None:
                    out.write(output.line(self.stop_note) + b"\n")

    def job(self) -> Job:
        """The job that evaluates the recorded outputs, in the same folder and with the same id."""
        answers = self.folder.path / "answers"
        # A killed process may have left an incomplete folder.
        shutil.rmtree(answers, ignore_errors=True)
        answers.mkdir()
        try:
            request = live_calls(self.evaluator).answered(self.request, self.evaluated, answers)
        finally:
            if not any(answers.iterdir()):
                answers.rmdir()
        self.folder.drop_working_files()
        return Job.start(self.evaluator, request, self._asked, self.folder)

    def evaluation(self) -> Header | None:
        """The header of the run that will evaluate the outputs; None if that needs further files."""
        if not live_calls(self.evaluator).answers_suffice:
            return None
        self.write_outputs()
        try:
            request = live_calls(self.evaluator).answered(self.request, self.outputs, self.folder.path)
            return planned_header(self.run, self.evaluator, request, self._asked)
        finally:
            # The file was only for planning. If it stayed, the calls would count as over.
            self.outputs.unlink()

    @property
    def tags(self) -> dict[str, str]:
        """The run's tags (``--tag``)."""
        return self._asked.tags

    def drop_working_files(self) -> None:
        """Remove the files that only an unfinished sweep, a retry of errors or a larger budget needs.

        The head stays under another name, so that the sweep can be repeated and shown.
        """
        # A retry of failed calls and a larger budget still need all files.
        if not self.recorded.errors and not self.spent and not self.further_left:
            with contextlib.suppress(FileNotFoundError):
                # Rename the head first: without it no command resumes the folder, even if a crash leaves other files.
                (self.folder.path / HEAD).replace(self.folder.path / ASKED)
            remove(self.folder.path, CALLS, RESERVE, DRIVER, FURTHER)
            # Keep the prompts for a target, which pages show. Prompts for judges are long and similar.
            if not self.live.keep_prompts or live_calls(self.evaluator).option != "target":
                remove(self.folder.path, PROMPTS)


# Check what a sweep will ask before anything is created or paid.


class _PreparedSweep(NamedTuple):
    """A checked sweep: its header with the run's id, its options, and the judges' stage if there is one."""

    header: SweepHeader
    live: SweepOptions
    stage: Stage | None


def _prepare(evaluator: Evaluator[Any, Any], request: Request, live: SweepOptions, asked: RunOptions) -> _PreparedSweep:
    """Raises ConfigError, UsageError or InputError for a sweep that cannot be made."""
    from evalq.workers.targets.variable import canonical_name  # imports the clients, which reading a run does not need

    calls = live_calls(evaluator)
    live = msgspec.structs.replace(live, target=canonical_name(live.target))
    if live.stop and calls.stopping(request) is None:
        raise UsageError(f"--stop {live.stop}: {evaluator.name} has no rule by which a case is decided")
    if "-" in request.inputs:
        raise ConfigError("a live sweep needs inputs that can be read twice, not standard input")
    for path in live.reuse:  # report an unusable source before anything is paid
        if live.target:
            SourceRun(path)
        else:
            RunFolder.existing(Path(path))
    stage = None
    if calls.judge_stage is not None:
        stage = calls.judge_stage.begin(request)  # raises if no judge is named
    cases, digest, users = prompts_digest(prompts_of(evaluator, request, live)) if live.target else (1, "", False)
    if not cases:
        raise UsageError("there is nothing to ask: no case is left")
    facts = {**sweep_facts(evaluator, request, live, asked, digest), **({USER: SIMULATED} if users else {})}
    header = SweepHeader("", live.target, code_version(), cases, live.repeat, facts)
    run = once_id(asked.once, header) if asked.once else new_run_id(evaluator.name, live.target)
    return _PreparedSweep(msgspec.structs.replace(header, run=run), live, stage)


def read_prompts(path: Path) -> Iterator[Prompt]:
    """The prompts that `_write_prompts` wrote, in order. Raises WireError for a line that a fault or a hand changed."""
    with open_input(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield msgspec.json.decode(line, type=Prompt)
            except (ValueError, RecursionError) as error:
                raise WireError(
                    f"{path}:{number}: the file is damaged: {error}. Start the run anew; --reuse {path.parent} takes "
                    "over what is answered"
                ) from error


def _write_prompts(path: Path, prompts: Iterator[Prompt]) -> None:
    """Write one line of JSON per prompt."""
    with replacing(path) as out:
        for prompt in prompts:
            out.write(msgspec.json.encode(prompt) + b"\n")


# Recorded outputs for judges, collected in one file of the run folder.


def _gather(evaluator: Evaluator[Any, Any], request: Request, folder: RunFolder, unpack_bytes: int) -> None:
    """Copy the recorded outputs of ``request`` into the folder, so that later changes of the files do not matter.

    Raises InputError.
    """
    with replacing(folder.path / RECORDED) as out:
        out.writelines(line + b"\n" for line in recorded_lines(evaluator, request, folder.spool, unpack_bytes))


def recorded_lines(
    evaluator: Evaluator[Any, Any], request: Request, scratch: Path | None = None, most: int = MAX_UNPACKED_BYTES
) -> Iterator[bytes]:
    """The lines of all recorded outputs that ``request`` names; packed files are unpacked into ``scratch``.

    Raises InputError.
    """
    judge_stage = live_calls(evaluator).judge_stage
    named = list(judge_stage.recorded(request)) if judge_stage is not None else []
    if not named or "-" in named:
        raise InputError("without a target there have to be files of recorded outputs to ask about")
    sources = inputs_of(evaluator, msgspec.structs.replace(request, inputs=named))
    with contextlib.ExitStack() as stack:
        place = scratch or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evalq-")))
        for source in sources:
            plain = plain_input(evaluator, source, place, most)
            with opened(plain, evaluator.records.format, evaluator.records.columns) as cutter:
                for batch in batches(cutter, plain):
                    yield from (line for _, line in batch.lines())
