"""What a judge of pairs reaches on sets of answers whose truth is known; ``python -m tests.bench.pair_errors NAME``.

The judge, a target of the targets file, is asked about pairs through `evalq checks`, as it is of anybody's answers. The
sets are those of tests/unit/checks/near_corpus.py, two corpora of 40 sets of 30 answers: 600 calls each. Prints
Markdown: how often its verdict on a pair is wrong, and that on a set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evalq.evalcore.evaluators.checks.answer import votes_of
from evalq.evalcore.evaluators.checks.diversity.kinds import half_of
from evalq.evalcore.views.markdown import table
from tests.unit.checks.near_corpus import AnswerSet, corpus

_EVALQ = (sys.executable, "-m", "evalq.producer.cli")
_FAILED_CALLS = 3
_HEAD = (
    *("Corpus", "Differing pairs called the same", "Same pairs called different", "Pairs without a verdict"),
    *("False collapsed, of decided", "False diverse, of decided", "Decided of the different", "Decided of the same"),
)


class PairErrors(NamedTuple):
    """{(whether a pair is the same, what was said of it): pairs}, and {(whether a set is, its verdict): sets}."""

    pairs: Counter[tuple[bool, str]]
    sets: Counter[tuple[bool, str]]


def pair_errors(number: int, seed: int, judge: str, targets: Path, folder: Path) -> PairErrors:
    """Those of a corpus, drawn with this seed; the run and its files are kept in ``folder``. Raises RuntimeError."""
    sets = {f"{each.language} {each.name}": each for each in corpus(number, seed)}
    how = {"by": "near", "judge": True}
    cases = [{"id": name, "checks": [{"min-length": 1}], "diversity": how} for name in sets]
    (folder / "cases.json").write_text(json.dumps({"cases": cases}), encoding="utf-8")
    with (folder / "outputs.jsonl").open("w", encoding="utf-8") as file:
        for name, each in sets.items():
            for repeat, answer in enumerate(each.answers):
                file.write(json.dumps({"case": name, "repeat": repeat, "output": answer}) + "\n")
    asked = ("--outputs", folder / "outputs.jsonl", "--judge", judge, "--targets", targets, "--out", folder / "run")
    words = (*_EVALQ, "checks", folder / "cases.json", *asked, "--format", "none")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in (0, _FAILED_CALLS):
        raise RuntimeError(done.stderr)
    return PairErrors(_of_pairs(sets, folder / "run"), _of_sets(sets, folder / "run"))


def _of_pairs(sets: Mapping[str, AnswerSet], run: Path) -> Counter[tuple[bool, str]]:
    found = Counter[tuple[bool, str]]()
    with (run / "judged.jsonl").open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            each, repeat = sets[record["case"]], record["repeat"]
            if repeat % 2 == 0:
                # In a fixed frame answers are the same where what stands in it is.
                same = each.same or each.answers[repeat] == each.answers[repeat + 1]
                said = half_of(each.answers[repeat], repeat, votes_of(record.get("judgements"))).outcome
                found[same, said or "not asked"] += 1
    return found


def _of_sets(sets: Mapping[str, AnswerSet], run: Path) -> Counter[tuple[bool, str]]:
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    entries = report["results"]["diversity"]["by_case"]
    return Counter((sets[entry["case"]].same, entry["by_judge"]["verdict"]) for entry in entries)


def shown(number: int, found: PairErrors) -> tuple[object, ...]:
    """Its row of the table."""
    pairs, sets = found
    decided = {same: sets[same, "collapsed"] + sets[same, "diverse"] for same in (True, False)}
    whole = {same: sum(count for (of, _), count in sets.items() if of is same) for same in (True, False)}
    every = {same: sum(count for (of, _), count in pairs.items() if of is same) for same in (True, False)}
    read = sum(count for (_, said), count in pairs.items() if said in ("same", "different"))
    return (
        number,
        _share(pairs[False, "same"], every[False]),
        _share(pairs[True, "different"], every[True]),
        _share(pairs.total() - read, pairs.total()),
        _share(sets[False, "collapsed"], sum(decided.values())),
        _share(sets[True, "diverse"], sum(decided.values())),
        _share(decided[False], whole[False]),
        _share(decided[True], whole[True]),
    )


def _share(part: int, of: int) -> str:
    return f"{part} of {of} ({part / of:.1%})" if of else "-"


def main(args: Sequence[str] | None = None) -> None:
    """Ask, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("judge", help="the target that judges")
    parser.add_argument("--targets", type=Path, default=Path("targets.yaml"), help="the targets file")
    parser.add_argument("--corpus", type=int, choices=(1, 2), action="append", help="one of them alone")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(args)
    rows = []
    for number in given.corpus or (1, 2):
        with tempfile.TemporaryDirectory(prefix="evalq-") as folder:
            found = pair_errors(number, given.seed, given.judge, given.targets.resolve(), Path(folder))
        rows.append(shown(number, found))
    sys.stdout.write(table(_HEAD, rows))


if __name__ == "__main__":
    main()
