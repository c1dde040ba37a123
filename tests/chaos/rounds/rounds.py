"""One round: what its commands are asked for, and what has to be true when all of them have ended."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from evalq.evalcore.model.canonical import canonical_json, digest
from tests.chaos.rounds.crowd import Ended, Going, let_go
from tests.integration.harness import evalq, info
from tests.samples import sampled

TOP = Path(__file__).parents[3]
WAYS = {"inline": ("--inline",), "embedded": ("--workers", "1"), "fleet": ()}
KINDS = ("same", "other", "folders")
RECORDS, CHUNK, OTHER_CHUNK = 1_000, 100, 70
_SEED = 3
_REFUSED = "the folder is not empty; name another with --out"


@dataclass(frozen=True)
class Asked:
    """What makes a run another one under the same key."""

    name: str
    args: tuple[str, ...] = ("--chunk-size", str(CHUNK))
    code: str = ""


class Arena:
    """What all rounds share: the input, another tree of the code, and the inline reports; all made when first asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.witness = folder / "witness"
        self.data.mkdir(parents=True)
        sampled("planagent", self.data, RECORDS, _SEED)
        (self.data / "other.json").write_text('{"rules": {"speed": "mean_of_points"}}')
        self.given = ("planagent", str(next(self.data.glob("*.csv"))))
        self._calm: dict[str, bytes] = {}

    @cached_property
    def other_tree(self) -> Path:
        """A copy of the code that differs by a comment in the evaluation library."""
        copy = self.folder / "other"
        shutil.copytree(TOP / "evalq", copy / "evalq", ignore=shutil.ignore_patterns("__pycache__"))
        with (copy / "evalq" / "evalcore" / "fold.py").open("a") as out:
            out.write("\n# another version\n")
        return copy

    def others(self) -> list[Asked]:
        """What half of the commands ask for in a round in which they differ, in turn."""
        same = Asked("nothing").args
        return [
            Asked("chunk size", ("--chunk-size", str(OTHER_CHUNK))),
            Asked("parameters", (*same, "--params", str(self.data / "other.json"))),
            Asked("code", same, str(self.other_tree)),
        ]

    def calm(self, asked: Asked) -> bytes:
        """The report of an undisturbed inline run of just that."""
        if asked.name not in self._calm:
            out = self.folder / f"calm-{len(self._calm)}"
            args = (*self.given, *asked.args, "--inline", "--out", str(out), "-q")
            done = evalq(*args, cwd=self.data, PYTHONPATH=asked.code or str(TOP))
            assert done.returncode == 0, done.stderr
            self._calm[asked.name] = (out / "report.json").read_bytes()
        return self._calm[asked.name]


@dataclass(frozen=True)
class Round:
    """``kind``: "same" for equal commands in one folder, "other" where half of them ask for something else, "folders"
    for equal commands in a folder each. ``broker`` is the fleet's, empty without one.
    """

    way: str
    kind: str
    number: int
    processes: int
    broker: str = ""

    def crowd(self, arena: Arena, folder: Path) -> list[tuple[Asked, Going]]:
        """The commands, those that differ between the others; of every two such rounds one names the run's folder."""
        plain = Asked("nothing")
        every = [plain]
        if self.kind == "other":
            others = arena.others()
            every.append(others[self.number // 2 % len(others)])
        common = (*arena.given, *WAYS[self.way], "--once", f"{self.kind} {self.number}", "--format", "json")
        common += ("--broker", self.broker) if self.broker else ()
        common += ("--out", "run") if self.named else ()
        crowd = []
        for number in range(self.processes):
            asked = every[number % len(every)]
            cwd = folder / (f"at-{number}" if self.kind == "folders" else "at")
            cwd.mkdir(exist_ok=True)
            crowd.append((asked, Going((*common, *asked.args), cwd, asked.code)))
        return crowd

    @property
    def named(self) -> bool:
        """Whether all commands name one folder, in which there is room for one run."""
        return self.kind == "other" and self.number % 2 == 1


def play(one: Round, arena: Arena, folder: Path, client: Any = None) -> dict[str, Any]:
    """A round, as a line of the results; ``why`` says what was wrong. ``client`` asks the fleet's server."""
    folder.mkdir(parents=True)
    crowd = one.crowd(arena, folder)
    reports = {asked.name: arena.calm(asked) for asked, _ in crowd}
    arena.witness.unlink(missing_ok=True)
    began = time.monotonic()
    ended, spread = let_go([going for _, going in crowd], folder, arena.witness)
    seconds = time.monotonic() - began
    answers = [(asked.name, each) for (asked, _), each in zip(crowd, ended, strict=True)]
    runs = _runs(folder)
    planned, computed = _planned(runs.values()), Counter(_computed(arena.witness))
    line = {
        "way": one.way,
        "kind": one.kind,
        "round": one.number,
        "differs": crowd[1][0].name if one.kind == "other" else "",
        "named": one.named,
        "processes": one.processes,
        "ended": len([each for each in ended if each.code == 0]),
        "refused": len([each for each in ended if _refused(each)]),
        "runs": len(runs),
        "chunks": planned.total(),
        "computed": computed.total(),
        "ledger": _ledger(client, runs) if client else None,
        "equal": len([name for name, each in answers if each.code == 0 and each.out == reports[name]]),
        "spread": round(spread, 4),
        "seconds": round(seconds, 1),
    }  # fmt: skip
    return line | {"why": "; ".join(_wrong(one, line, answers, reports, planned == computed, folder))}


def _wrong(
    one: Round,
    line: Mapping[str, Any],
    answers: Sequence[tuple[str, Ended]],
    reports: Mapping[str, bytes],
    once: bool,
    folder: Path,
) -> Iterator[str]:
    """What is not as it must be."""
    for number, (name, each) in enumerate(answers):
        if each.code != 0 and not (one.named and _refused(each)):
            yield f"command {number} ({name}): exit {each.code}: {each.said.strip()[-300:]}"
        if each.code == 0 and each.out != reports[name]:
            yield f"command {number} ({name}): another report than its own inline run"
    for run in sorted(folder.glob("at*/*/report.json")) + sorted(folder.glob("at*/evalq-runs/*/report.json")):
        if run.read_bytes() not in reports.values():
            yield f"{run}: another report than an inline run's"
    wanted = 2 if one.kind == "other" and not one.named else 1
    if line["runs"] != wanted:
        yield f"{line['runs']} runs, and not {wanted}"
    if not once:
        yield f"{line['computed']} chunks were computed for {line['chunks']} that were planned"
    if line["ledger"] not in (None, line["chunks"]):
        yield f"the ledger counts {line['ledger']} computed chunks of {line['chunks']}"
    left = [path for path in folder.glob("at*/**/.*") if path.is_dir()]
    if left:
        yield f"left behind: {', '.join(map(str, left))}"


def _refused(ended: Ended) -> bool:
    """Whether a command said that there is another run in the folder that it names."""
    return ended.code == 2 and _REFUSED in ended.said


def _runs(folder: Path) -> dict[str, dict[str, Any]]:
    """{id: manifest} of the runs in a round's folders that are done."""
    found = {}
    for path in (*folder.glob("at*/*/run.json"), *folder.glob("at*/evalq-runs/*/run.json")):
        manifest = path.with_name("manifest.json")
        if manifest.exists():
            found[info(path.parent)["run"]] = msgspec.json.decode(manifest.read_bytes())
        else:
            found.setdefault(info(path.parent)["run"], {"header": {}, "chunks": []})
    return found


def _ledger(client: Any, runs: Iterable[str]) -> int:
    """How many chunks the ledger was told of as computed."""
    return sum(int(client.hget(f"evalq:run:{{{run}}}:meta", "computed") or 0) for run in runs)


def _planned(manifests: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """What the witness has to say of runs whose chunks are computed once."""
    found: Counter[str] = Counter()
    for manifest in manifests:
        header = manifest["header"]
        for chunk in manifest["chunks"]:
            asked = digest(canonical_json(header["params"]))
            size = chunk["end"] - chunk["start"]
            found[f"{header['code_version']} {asked} {chunk['first_line']} {size}"] += 1
    return found


def _computed(witness: Path) -> list[str]:
    return witness.read_text().splitlines() if witness.exists() else []
