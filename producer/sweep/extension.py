"""Extending a finished sweep: the same cases asked more often, or of another target, in a run of its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from evalq.evalcore.compare.counting import usage_of
from evalq.evalcore.contract.evaluator import live_calls
from evalq.evalcore.errors import UsageError
from evalq.producer.folder.files import OUTPUTS
from evalq.producer.folder.job import RunOptions
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep
from evalq.workers.targets.variable import canonical_name


class Extension(msgspec.Struct, frozen=True):
    """What a finished sweep is extended to: ``repeats`` of each case (None: as many as it has), another ``target``
    ("": the one it asked), other ``cases`` (none: its own), and the budgets and the cache of what is called for that.
    """

    repeats: int | None = None
    target: str = ""
    cases: Sequence[str] = ()
    max_calls: int | None = None
    max_cost: float | None = None
    cache: str = ""

    def begin(self, folder: RunFolder, asked: RunOptions) -> Sweep:
        """The sweep that extends the one in ``folder``; ``asked`` says its own folder, key and notes.

        Without a key it is the same run however often it is asked for. Raises UsageError for a run that cannot be
        extended so, RunExistsError where it was begun before, and what `Sweep.start` raises.
        """
        sweep, live = extension_of(folder, self)
        # The same command is the same run: after a kill it resumes, and nobody pays for the repeats twice by accident.
        once = asked.once or f"extend {sweep.run}"
        suite, _, _ = sweep.given
        tags = {**suite.tags, **asked.tags}
        chosen = msgspec.structs.replace(suite, out=asked.out, under=None, once=once, tags=tags)
        return Sweep.start(sweep.evaluator, sweep.request_of(self.cases), live, chosen, sweep.run)


def extension_of(folder: RunFolder, wanted: Extension) -> tuple[Sweep, SweepOptions]:
    """The sweep in ``folder``, and what is asked of the one that extends it. Raises UsageError, ConfigError."""
    sweep = _finished(folder, same=not wanted.cases)
    if wanted.repeats is not None and not live_calls(sweep.evaluator).repeats:
        raise UsageError(f"--repeat: {sweep.evaluator.name} calls each case once")
    if not sweep.live.target:
        raise UsageError(
            f"{folder.path}: it called no target for its outputs; judge others with --outputs FILE --judge NAME"
        )
    before, target = sweep.live, canonical_name(wanted.target) if wanted.target else sweep.live.target
    live = msgspec.structs.replace(
        before.asking(target, wanted.repeats or before.repeat),
        max_calls=wanted.max_calls or 0,
        max_cost=wanted.max_cost or 0.0,
        cache=wanted.cache,
    )
    # Another target has answered nothing yet that could be taken over.
    if target != before.target:
        return sweep, live
    used = usage_of(folder.path / OUTPUTS)
    if not used.outputs:
        raise UsageError(f"{folder.path / OUTPUTS}: no output is recorded there; start a new sweep")
    if not used.config:
        raise UsageError(f"{folder.path}: its answers are of several settings of {target!r}; start a new sweep")
    # A stop rule leaves calls out on purpose.
    whole = used.outputs >= sweep.header.total or bool(before.stop)
    if live.repeat < before.repeat or (live.repeat == before.repeat and whole and not wanted.cases):
        raise UsageError(
            f"{folder.path}: each case was asked {before.repeat} times: more (--repeat N), another target "
            "(--target NAME) or further cases (--cases FILE) extend it"
        )
    giver = str(folder.path.absolute())
    return sweep, msgspec.structs.replace(live, reuse=(giver,), extends=sweep.run, config=used.config)


def _finished(folder: RunFolder, *, same: bool) -> Sweep:
    """The sweep in ``folder``, which has its report. Raises UsageError."""
    info = folder.info()
    # Of one that still goes, some answers are elsewhere, and would be paid for again.
    if info.state != "done":
        by = folder.driver()
        then = f"{by} drives it: wait for it with evalq watch {folder.named()}" if by else folder.next_step(info.state)
        raise UsageError(f"{folder.path}: only a finished run is extended, and this one is {info.state}; {then}")
    sweep = Sweep.asked_in(folder, same=same)
    if sweep is None or not (folder.path / OUTPUTS).is_file():
        why = "its calls were made elsewhere" if info.target else "it asked no target"
        raise UsageError(f"{folder.path}: there is nothing to extend: {why}")
    return sweep
