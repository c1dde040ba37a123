"""docs/reference/mutation.md, out of what runs found and what is known of their survivors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from evalq.evalcore.statistics.rates import exact_interval
from evalq.evalcore.views.markdown import table

REASONS = Path(__file__).parent / "survivors.json"
"""Why mutants live: objects with path, function, before, after and why."""

_INTRODUCTION = """\
# Mutation testing

`make mutation` changes one thing at a time in the evaluators, and in what they decide by, which several share
(`modes`: how concentrated answers are; `statistics`: intervals, corrected rates, agreement), and runs the unit
tests that execute the changed line. A change that no test notices is alive; an evaluator's contract tests are tried as
well where `--tests` is not given. `tests/mutation/mutants.py` has what is changed, the docstring of its package what is
spared, `tests/mutation/targets.py` which tests are whose. Samples have a share of every module, and are tried in random
order until the minutes are over, where any are given; `--quick` tries a fifth of the examples of each property, which
can only leave more alive.

These samples were drawn anew, with no test written for them before: their shares are estimates of what goes unnoticed
in the whole folder, with exact 95 % intervals. Where fewer were tried than were drawn, the minutes were over. The
figures leave out gaps that were closed afterwards. Line numbers are those of the code that was tried. Of the 127 that
live, 66 are equivalent or change only speed, memory, what is made up or a bound that nothing reaches, 55 are noticed
since, and 2 by tests that were not tried. Until this sample two things went wrong: a test whose name held a value that
a change had changed was not found, and what it notices counted as alive; and one test left a made-up package behind, so
that others failed and a few changes counted as noticed. Verification was tried again without the latter.
"""

_EARLIER = """\
## Earlier samples

After all modules were folded into fewer, a sample of 195 (about 20 of each, of the checks 31, with seed 21) left 28
alive, 14.4 % (9.8 to 20.1): 17 of 152 in the evaluators, 4 of 20 of `modes`, 7 of 23 of `statistics`. Seven are noticed
since. Three of these were in code of quantiles whose only tests had been those of comparisons.

Of the sample before this one, of 115 to 165 a folder, lived 17.1 % (cooperation), 10.9 % (planagent), 4.4 %
(selfcheck), 12.7 % (checks), 16.8 % (statistics), 13.0 % (modes), 6.7 % (vs) and 3.8 % (verification): 120 of 1,147.

First samples of each folder, before tests were written for them, left alive 20.9 % (checks, 182 tried), 11.9 %
(cooperation), 8.0 % (planagent), 2.5 % (selfcheck), 8.4 % (vs), 2.2 % (verification; these five of 83 to 163) and
18.3 % (statistics, 104). Other samples since, drawn anew too, left 19.3 % of 83 (checks), 14.6 % of 41 (cooperation),
14.1 % of 135 (planagent), 4.5 % of 22 (selfcheck), 21.5 % of 79 (statistics) and 29.4 % of 17 (modes). Somebody
looked at each of them, and most have tests since. Of the statistics, the interval of corrected rates has an
oracle, which found that cases of unequal weight and one rate were taken to differ by rounding.
"""


def page(folders: Sequence[Mapping[str, Any]]) -> str:
    """The page, as Markdown."""
    known = {_key(row): row["why"] for row in json.loads(REASONS.read_text(encoding="utf-8"))}
    rows: list[tuple[object, ...]] = [_figures(found) for found in folders]
    parts = [_INTRODUCTION, "".join(f"    {_command(found)}\n" for found in folders)]
    parts += [table(("what", "mutants possible", "tried", "killed", "alive", "alive, share (95 %)"), rows), _EARLIER]
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
    low, high = exact_interval(alive, tried) if tried else (0.0, 1.0)
    share = f"{alive / tried:.1%} ({100 * low:.1f} to {100 * high:.1f})" if tried else "-"
    return found["folder"], found["possible"], tried, tried - alive, alive, share


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
