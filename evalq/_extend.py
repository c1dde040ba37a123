"""Extending a finished sweep from Python, as `evalq extend` does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evalq._arguments import amount, at_least_one, checked_tags, texts, whole
from evalq._evaluate import _reporter, _settings
from evalq._run import Run, open_run, run_folder
from evalq.evalcore.contract import plugins

__all__ = ["extend"]


def extend(
    run: str | Path,
    *,
    repeat: int | None = None,
    target: str = "",
    cases: str | Path | Sequence[str | Path] = (),
    targets: str | Path | None = None,
    max_calls: int | None = None,
    max_cost: float | None = None,
    cache: str | Path | None = None,
    broker: str | None = None,
    ledger: str | None = None,
    workers: int | None = None,
    calls: int | None = None,
    folder: str | Path | None = None,
    once: str = "",
    tags: Mapping[str, str] | None = None,
    settings: str | Path | None = None,
    progress: bool = False,
) -> Run:
    """Ask the cases of a finished sweep more often, or of another target, in a new `Run`: what `evalq extend` does.

        more = evalq.extend("evalq-runs/vs-0a1b2c3d4e", repeat=100)
        other = evalq.extend("evalq-runs/vs-0a1b2c3d4e", target="candidate")

    ``run`` is its folder, or the id of a run in ./evalq-runs; it stays as it is. ``repeat`` is how often each case is
    asked in all, ``cases`` names files in place of its own. What it recorded is taken over where the target is the
    same, whose settings have to be what they were; `compare` and `gate` do not take that for fresh evidence. Without
    ``once`` the same call is one run: again it returns that, or resumes it. The targets file is that of ``run`` unless
    ``targets`` or ``broker`` is given. The other arguments are those of `sweep`.

    Raises UsageError for a run that cannot be extended so, and what `sweep` raises.
    """
    from evalq.producer.folder.job import RunOptions
    from evalq.producer.lifecycle.start import begin_or_join
    from evalq.producer.run.backend import Backend
    from evalq.producer.sweep.execute import with_targets
    from evalq.producer.sweep.extension import Extension

    at_least_one(workers=workers)
    (repeat, max_calls), max_cost = whole(repeat=repeat, max_calls=max_calls), amount(max_cost=max_cost)
    _, once = texts("", once)
    origin = run_folder(run)
    given = [cases] if isinstance(cases, str | Path) else list(cases)
    chosen = _settings(settings, broker, ledger, targets=str(targets) if targets else None, calls=calls)
    backend = with_targets(Backend(chosen, workers=workers), origin)
    wanted = Extension(repeat, target, [str(path) for path in given], max_calls, max_cost, str(cache or ""))
    asked = RunOptions(None if folder is None else Path(folder), tags=checked_tags(tags), once=once)
    reporter = _reporter(plugins.get(origin.info().evaluator), progress)
    begun = begin_or_join(lambda: wanted.begin(origin, asked), backend, reporter, detach=False, command=False)
    assert begun is not None, "nothing is left to the fleet"
    return open_run(begun.path)
