"""docs/reference/mutation.md, out of what runs found and what is known of their survivors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from evalq.evalcore.views.markdown import table

__all__ = ["page"]

REASONS = Path(__file__).parent / "survivors.json"
"""Why mutants live: objects with path, function, before, after and why."""

_INTRODUCTION = """\
# Mutation testing

`make mutation` changes one thing at a time in the evaluators (a comparison, a constant, a statement that is left out)
and runs the unit tests of that evaluator that execute the changed line. A change that no test notices is alive; its
contract tests are tried as well where `--tests` is not given. `tests/mutation/mutants.py` has what is changed, the
docstring of its package what is spared. Where a sample showed a gap, a test was written for it and the survivors were
tried again; another seed gives mutants that no test was written for. In their first run, before any such test, the
samples below left alive 8.0 % (planagent), 11.9 % (cooperation), 8.4 % (vs), 2.5 % (selfcheck) and 2.2 %
(verification), which is 7.5 % of all possible mutants when each folder counts by its size; two later samples of
cooperation, of 108 each, 17.6 % (seed 11) and, after tests for four of those, 12.0 % (seed 12). Samples have a share
of every module, and are tried in random order until the minutes are over, where any are given. Modules and lines are
named as they were when that was measured; some have moved since:
"""


def page(folders: Sequence[Mapping[str, Any]]) -> str:
    """The page, as Markdown."""
    known = {_key(row): row["why"] for row in json.loads(REASONS.read_text(encoding="utf-8"))}
    rows: list[tuple[object, ...]] = [_figures(found) for found in folders]
    parts = [_INTRODUCTION, "".join(f"    {_command(found)}\n" for found in folders)]
    parts += [table(("folder", "mutants possible", "tried", "killed", "alive", "alive, share"), rows)]
    parts += ["## Survivors\n"]
    for found in folders:
        parts += [f"### {found['folder']}\n", "\n".join(_survivors(found["alive"], known)) + "\n"]
    return "\n".join(parts)


def _command(found: Mapping[str, Any]) -> str:
    sample = f" --sample {found['sample']} --seed {found['seed']}" if found["sample"] else ""
    tests = f" --tests {found['tests']}" if found["tests"] != "both" else ""
    minutes = f" --minutes {found['minutes']:g}" if found["minutes"] else ""
    quick = " --quick" if found.get("quick") else ""
    return f"python -m tests.mutation {found['folder']}{sample}{tests}{minutes}{quick}"


def _figures(found: Mapping[str, Any]) -> tuple[object, ...]:
    tried, alive = found["mutants"], len(found["alive"])
    return found["folder"], found["possible"], tried, tried - alive, alive, f"{alive / tried:.1%}" if tried else "-"


def _survivors(alive: Sequence[Mapping[str, Any]], known: Mapping[tuple[str, ...], str]) -> Iterator[str]:
    if not alive:
        yield "None."
    for why, rows in groupby(sorted(alive, key=lambda row: _why(row, known)), key=lambda row: _why(row, known)):
        yield f"- {why}"
        for row in rows:
            yield f"  - {_where(row['path'])}:{row['line']}: {_code(row['before'])} → {_code(row['after'])}"


def _where(path: str) -> str:
    """A module by its path in its evaluator's folder, or below ``evalcore``."""
    parts = Path(path).parts
    return "/".join(parts[3:] if parts[1] == "evaluators" else parts[1:])


def _why(row: Mapping[str, Any], known: Mapping[tuple[str, ...], str]) -> str:
    return known.get(_key(row), "Not looked into.")


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return row["path"], row["function"], row["before"], row["after"]


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
