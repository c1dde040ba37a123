"""Extend a finished sweep in a new run: more repeats of the same cases, further cases, or another target."""

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
    """How to extend a finished sweep: ``repeats`` per case (None: as many as before), ``target`` ("": the same),
    ``cases`` files (empty: the same), and the budgets and the cache for the new calls.
    """

    repeats: int | None = None
    target: str = ""
    cases: Sequence[str] = ()
    max_calls: int | None = None
    max_cost: float | None = None
    cache: str = ""

    def begin(self, folder: RunFolder, asked: RunOptions) -> Sweep:
        """The sweep that extends the one in ``folder``; ``asked`` has its own folder, key and tags.

        Without a key, the same extension is always the same run. Raises UsageError for a run that cannot be extended
        like this, RunExistsError if the extension exists already, and the errors of `Sweep.start`.
        """
        sweep, live = extension_of(folder, self)
        # The same command means the same run: after a kill it resumes, and the repeats are never paid twice.
        once = asked.once or f"extend {sweep.run}"
        suite, _, _ = sweep.given
        tags = {**suite.tags, **asked.tags}
        chosen = msgspec.structs.replace(suite, out=asked.out, under=None, once=once, tags=tags)
        return Sweep.start(sweep.evaluator, sweep.request_of(self.cases), live, chosen, sweep.run)


def extension_of(folder: RunFolder, wanted: Extension) -> tuple[Sweep, SweepOptions]:
    """(the sweep in ``folder``, the options of its extension). Raises UsageError or ConfigError."""
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
    # Another target has no answers to reuse.
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
    """The finished sweep in ``folder``. Raises UsageError for others."""
    info = folder.info()
    # Some answers of an unfinished sweep are not in the folder, and would be paid for again.
    if info.state != "done":
        by = folder.driver()
        then = f"{by} drives it: wait for it with evalq watch {folder.named()}" if by else folder.next_step(info.state)
        raise UsageError(f"{folder.path}: only a finished run is extended, and this one is {info.state}; {then}")
    sweep = Sweep.asked_in(folder, same=same)
    if sweep is None or not (folder.path / OUTPUTS).is_file():
        why = "its calls were made elsewhere" if info.target else "it asked no target"
        raise UsageError(f"{folder.path}: there is nothing to extend: {why}")
    return sweep
