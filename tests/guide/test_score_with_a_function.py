"""The page about a function of one's own, walked: its file, its commands, on this machine and on a fleet."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.integration.harness import evalq, running_server, start_evalq, wait_until

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "how-to" / "score-with-a-function.md").read_text(encoding="utf-8")
BROKER = "redis://localhost:6379/0"


def _blocks(kind: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the page's files."""
    (tmp_path / "short.py").write_text(_blocks("python")[0])
    (tmp_path / "outputs.jsonl").write_text(_blocks("json")[0])
    (tmp_path / "evalq.yaml").write_text(_blocks("yaml")[0])
    return tmp_path


def test_the_commands_do_what_the_page_says(folder: Path) -> None:
    """All that need no server: the score, the comparison, the suite."""
    first, compared, _, suite = _blocks("sh")
    done = evalq(*shlex.split(first)[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert _blocks("text")[0] in done.stdout
    for line in compared.splitlines():
        done = evalq(*shlex.split(line)[1:], cwd=folder)
        assert done.returncode == 0, done.stderr
    assert "pass\\_rate" in done.stdout
    done = evalq(*shlex.split(suite)[1:], cwd=folder)
    assert done.returncode == 0, done.stderr


def test_a_fleet_gives_the_same_report(folder: Path) -> None:
    """The page's worker and command on a real server; a worker with another file takes no part."""
    worker, score = (line.replace(BROKER, "{}") for line in _blocks("sh")[2].splitlines())
    assert evalq("score", "short.py", "outputs.jsonl", "--inline", "--out", "here", cwd=folder).returncode == 0
    (folder / "other").mkdir()
    (folder / "other" / "short.py").write_text("def score(record):\n    return 0.0\n")
    with running_server(folder) as server:
        words = [shlex.split(line.format(server.url)) for line in (worker, score)]
        other = [word.replace("short.py", "other/short.py") for word in words[0]]
        workers = [start_evalq(*line[1:], "--concurrency", "1", cwd=folder) for line in (other, words[0])]
        try:
            done = evalq(*words[1][1:], "--chunk-size", "1", "--out", "fleet", cwd=folder)
        finally:
            for each in workers:
                each.terminate()
            for each in workers:
                each.communicate()
    assert done.returncode == 0, done.stderr
    assert (folder / "fleet" / "report.json").read_bytes() == (folder / "here" / "report.json").read_bytes()
    wait_until(lambda: all(each.poll() is not None for each in workers), "workers end")


def test_the_first_page_shows_a_function_that_runs(folder: Path) -> None:
    """README's file and command, as they stand there."""
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    (code,) = _blocks("python", readme)
    (command,) = (block for block in _blocks("sh", readme) if "evalq score" in block)
    words = shlex.split(command, comments=True)
    (folder / words[2]).write_text(code)
    done = evalq(*words[1:], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 records passed" in done.stdout
