"""The command; ``python -m tests.mutation --help`` tells what it takes."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutation.mutants import Change, changes, made
from tests.mutation.targets import TARGETS, Target
from tests.mutation.trial import Baseline, baseline, import_slow_ones, killed_by

NEEDS = {"deepeval.py": "deepeval"}
"""Modules that only an extra can import."""


class Mutant(NamedTuple):
    """A change, in its module's tree."""

    module: str
    path: Path
    tree: ast.Module
    change: Change


def main(given: Sequence[str] | None = None) -> int:
    """Run, or make the page out of what earlier runs wrote."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "folders", nargs="*", choices=[*TARGETS, []], metavar="FOLDER", help=f"all, or {', '.join(TARGETS)}"
    )
    parser.add_argument("--sample", type=int, help="so many of a folder's mutants, of every module; all if not given")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--tests", choices=("unit", "contract", "both"), default="both", help="which to run")
    parser.add_argument("--minutes", type=float, help="try so long in a folder, with the figures of those tried")
    parser.add_argument("--quick", action="store_true", help="try a fifth of the examples of each property")
    parser.add_argument("--again", type=Path, help="only what was alive in this --out of an earlier run")
    parser.add_argument("--only", default="", help="mutants whose `path:line` starts so")
    parser.add_argument("--out", type=Path, help="write what was found there, as JSON")
    parser.add_argument("--page", type=Path, nargs="+", metavar="FILE", help="print the Markdown page of such files")
    asked = parser.parse_args(given)
    if asked.page:
        from tests.mutation.page import page  # imports what a run may change

        sys.stdout.write(page([found for file in asked.page for found in json.loads(file.read_text())]))
        return 0
    earlier = {found["folder"]: found for found in json.loads(asked.again.read_text())} if asked.again else {}
    found = [_run(folder, asked, earlier.get(folder)) for folder in asked.folders or earlier or TARGETS]
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


def _run(folder: str, asked: argparse.Namespace, earlier: dict[str, Any] | None) -> dict[str, Any]:
    began = time.monotonic()
    target = TARGETS[folder]
    mutants = [mutant for mutant in _mutants(target) if f"{mutant.path}:{mutant.change.line}".startswith(asked.only)]
    possible = len(mutants)
    if earlier:
        lived = [_alive(row) for row in earlier["alive"]]
        mutants = [mutant for mutant in mutants if _alive(_row(mutant)) in lived]
    elif asked.sample:
        mutants = sampled(mutants, asked.sample, asked.seed)
    import_slow_ones(own=bool(target.contract))
    own = [name for name in sys.modules if target.has(name)]
    if own:
        raise SystemExit(f"imported too early: {', '.join(own)}")
    wanted = {"unit": target.unit, "contract": target.contract}
    stages = [
        baseline(target.package, target.files(), tests, asked.quick)
        for kind, tests in wanted.items()
        if tests and asked.tests in (kind, "both")
    ]
    tests = " + ".join(str(len(stage.seconds)) for stage in stages)
    sys.stdout.write(
        f"{folder}: {len(mutants)} of {possible} mutants, seed {asked.seed}; {tests} tests; "
        f"{time.monotonic() - began:.0f} s to begin with\n"
    )
    alive: list[dict[str, Any]] = []
    tried = 0
    began_trying = time.monotonic()
    # In no order, so that those tried are a sample wherever it stops.
    for mutant in random.Random(asked.seed).sample(mutants, len(mutants)):
        if asked.minutes and not earlier and time.monotonic() > began_trying + asked.minutes * 60:
            break
        tried += 1
        killer = _killer(mutant, stages, asked.quick)
        if killer is None:
            alive.append(_row(mutant))
            sys.stdout.write("alive: {path}:{line}: {before}  ->  {after}\n".format_map(alive[-1]))
            sys.stdout.flush()
    figures = {name: getattr(asked, name) for name in ("tests", "sample", "seed", "minutes", "quick")}
    figures = (earlier or {"folder": folder, **figures, "possible": possible, "mutants": tried}) | {
        "alive": sorted(alive, key=_alive)
    }
    share = len(alive) / figures["mutants"] if figures["mutants"] else 0.0
    taken = time.monotonic() - began
    sys.stdout.write(f"{folder}: {len(alive)} of {figures['mutants']} alive, {share:.1%}; {taken:.0f} s\n")
    return figures


def _row(mutant: Mutant) -> dict[str, Any]:
    """The message about a mutant that survives."""
    change = mutant.change
    return {
        "path": str(mutant.path.relative_to("evalq")),
        "line": change.line,
        "column": change.column,
        "function": change.function,
        "before": change.before,
        "after": change.after,
    }


def _alive(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["path"], row["line"], row["column"], row["before"], row["after"]


def sampled(mutants: Sequence[Mutant], size: int, seed: int) -> list[Mutant]:
    """A little over ``size`` of them in their order: of each module its share, and one at least."""
    rng = random.Random(seed)
    by_module: dict[str, list[int]] = {}
    for at, mutant in enumerate(mutants):
        by_module.setdefault(mutant.module, []).append(at)
    chosen: list[int] = []
    for places in by_module.values():
        share = math.ceil(size * len(places) / len(mutants))
        chosen += rng.sample(places, min(share, len(places)))
    return [mutants[at] for at in sorted(chosen)]


def _mutants(target: Target) -> Iterator[Mutant]:
    for path in target.files():
        if path.name in NEEDS:
            try:
                importlib.import_module(NEEDS[path.name])
            except ImportError:
                sys.stdout.write(f"left out, as {NEEDS[path.name]} is not installed: {path}\n")
                continue
        parts = path.with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for change in changes(tree, prose=path.name.startswith("sample") or path.name == "texts.py"):
            yield Mutant(module, path, tree, change)


def _killer(mutant: Mutant, stages: Sequence[Baseline], quick: bool) -> str | None:
    """The test that fails, of the folder's own, and if none does of the contract's."""
    change, path = mutant.change, mutant.path.resolve()
    with made(change):
        code = compile(mutant.tree, str(path), "exec", dont_inherit=True)
    for known in stages:
        if tests := known.tests(path, change.first, change.last):
            killer = killed_by(mutant.module, path, code, known, tests, quick)
            if killer is not None:
                known.failed[killer] += 1
                return killer
    return None


if __name__ == "__main__":
    sys.exit(main())
