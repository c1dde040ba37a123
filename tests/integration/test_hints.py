"""Every command that a hint names is one that runs: in each state of the table of legal moves, by each command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.evalcore.contract.evaluator import Request
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.model.life import MOVES, RunState
from evalq.producer.cli import main
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.folder.own_runs import note_targets
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation.finding import find
from evalq.producer.sweep.execute import _question
from evalq.producer.sweep.options import SweepOptions
from evalq.producer.sweep.sweep import Sweep
from tests.agents.server import running_agent, write_golden

HINT = re.compile(r"evalq [a-z]+ [^;,()\n]+")
FOLDER = "a run"
"""With a space in its name: a hint is for a shell."""
ASKED: tuple[tuple[str, ...], ...] = (
    ("report", FOLDER),
    ("watch", FOLDER),
    ("status", FOLDER),
    ("list",),
    ("prune", FOLDER),
    ("retry", FOLDER, "--errors"),
    ("cancel", FOLDER),
    ("resume", FOLDER),
)
"""Commands that may refuse a run in some state, and say what to do instead."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an input and a golden set, and an agent that answers."""
    folder = tmp_path_factory.mktemp("hints")
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 30, seed=7)
    write_golden(folder / "golden.json", {f"C{number}": {"share": 0.5} for number in range(2)})
    with running_agent() as (_, url):
        chat = {"kind": "openai", "base_url": url, "model": "m"}
        (folder / "targets.yaml").write_text(json.dumps({"targets": {"chat": chat}}))
        yield folder


def _way(first: RunState, last: RunState) -> list[RunState]:
    """States that lead from one to another, by moves of the table."""
    ways: deque[list[RunState]] = deque([[first]])
    while ways:
        way = ways.popleft()
        if way[-1] == last:
            return way
        ways.extend([*way, state] for state in sorted(MOVES[way[-1]]) if state not in way)
    raise AssertionError(f"no way from {first} to {last}")


def _begun(path: Path, kind: str, place: Path) -> RunFolder:
    """A run that was begun and is driven by nobody: an evaluation, or a sweep in its calls."""
    if kind == "run":
        asked = RunOptions(out=path)
        job = Job.start(plugins.get("planagent"), Request([str(place / "rows.csv")], {}, {}), asked)
        folder = job.folder
    else:
        request = Request([str(place / "golden.json")], {}, {})
        sweep = Sweep.start(plugins.get("vs"), request, SweepOptions("chat", 2), RunOptions(out=path))
        folder = sweep.folder
        note_targets(folder, _question(folder), str(place / "targets.yaml"))
    with folder.driving():
        pass  # its lock goes with the process that began it
    return RunFolder(folder.path)


def _in_state(path: Path, kind: str, state: RunState, place: Path) -> RunFolder:
    folder = _begun(path, kind, place)
    for step in _way(folder.info().state, state)[1:]:
        folder.note(state=step)
    return folder


def _hints(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, list[list[str]]]:
    """A command's exit code, and the commands that it names."""
    code = main(list(command))
    said = capsys.readouterr()
    hints = [shlex.split(hint)[1:] for hint in HINT.findall(said.out + said.err)]
    # A word in capitals stands for what the user has to name: such a line is no command yet.
    return code, [hint for hint in hints if not any(word.isupper() for word in hint)]


# A detached run needs its server, a retry its report, and a followed log its command: they are mentioned elsewhere.
STATES: dict[str, tuple[RunState, ...]] = {
    "run": ("open", "interrupted", "paused", "stopped", "failed", "cancelled"),
    "sweep": ("calling", "called", "interrupted", "spent", "retrying", "cancelled"),
}
REACHED = [(kind, state) for kind, states in STATES.items() for state in states]


@pytest.mark.parametrize(("kind", "state"), REACHED, ids=lambda value: str(value))
def test_what_a_hint_names_runs(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    state: RunState,
) -> None:
    """Each command is tried on a run in this state; what it tells to do instead is done, and ends with 0."""
    base = tmp_path / "base"
    _in_state(base, kind, state, place)
    monkeypatch.chdir(tmp_path)
    done: set[str] = set()
    for number, command in enumerate(ASKED):
        here = tmp_path / str(number)
        path = here / ("evalq-runs/" + FOLDER if command == ("list",) else FOLDER)
        shutil.copytree(base, path)
        monkeypatch.chdir(here)
        code, hints = _hints(capsys, *command)
        if command[0] not in ("list", "status") and not code:
            continue  # it did what it was asked for
        for hint in hints:
            if hint[0] == "view":  # it serves until it is ended
                assert find(hint[1]).path.is_dir()
            elif hint[0] not in done:
                done.add(hint[0])
                ended = main(hint)
                assert ended == 0, f"{command} says {hint}, which ends with {ended}: {capsys.readouterr().err}"
    assert done, "something is told to be done"
