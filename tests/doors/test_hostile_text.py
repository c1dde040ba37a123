"""The reader's door: what an agent wrote is shown, never obeyed, in each file and line that a person opens."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.contract import plugins
from evalq.producer.folder.job import Job, RunOptions
from evalq.producer.monitor.progress import Reporter
from evalq.producer.outputs import write_output
from evalq.producer.run.backend import Backend
from evalq.producer.run.execute import carry_out
from evalq.workers.settings import Settings
from tests.integration.harness import evalq
from tests.samples import sampled

HOSTILE = (
    "@everyone &#64;all https://evil.example/x HTTP://evil.example www.evil.example me@evil.example ftp://evil.example "
    "\u200f\u061c\U000e0041"
    "=HYPERLINK(1)|<script>alert(1)</script><img src=x onerror=y>[x](javascript:a)`\x1b[31m\x9b2J\x07\u202e\r\nend|"
)
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
LIVE = re.compile(r"@(everyone|all|evil)|://evil|www\.evil", re.IGNORECASE)
"""A mention or a link, once a page is shown: backslashes before signs are gone by then."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _poisoned(value: Any, number: int) -> Any:
    """Every text in ``value`` with HOSTILE before (in every third record), behind it, or alone."""
    if isinstance(value, dict):
        return {key: _poisoned(inner, number) for key, inner in value.items()}
    if isinstance(value, list):
        return [_poisoned(inner, number) for inner in value]
    if isinstance(value, str):
        return (HOSTILE + value, value + HOSTILE, value)[number % 3]
    return value


def _poison(path: Path) -> None:
    """Write a sample's input anew with hostile texts; some of its records become broken ones by it, which is meant."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        out = io.StringIO(newline="")
        csv.writer(out).writerows([header, *(_poisoned(row, number) for number, row in enumerate(rows))])
        path.write_text(out.getvalue(), encoding="utf-8", newline="")
    elif path.suffix == ".jsonl":
        lines = [_poisoned(json.loads(line), number) for number, line in enumerate(text.splitlines()) if line.strip()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("name", plugins.built_in())
def test_hostile_text_is_shown_and_not_obeyed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Markdown has no HTML, link, broken table or control character of the data's; CSV has no formula in any cell."""
    monkeypatch.chdir(tmp_path)
    evaluator = plugins.get(name)
    request = sampled(evaluator, tmp_path, 30, 3)
    for path in {Path(item) for item in [*request.inputs, *map(str, tmp_path.rglob("*.jsonl"))]}:
        _poison(path)
    job = Job.start(evaluator, request, RunOptions(out=tmp_path / "run"))
    carry_out(job, Backend(Settings(), inline=True), Reporter("x", quiet=True, bar=False, json_lines=False))
    text = (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    assert not CONTROL.search(text)
    assert not re.search(r"(?<!\\)<(script|img)", text), "escaped one way or the other"
    assert not re.search(r"(?<!\\)\]\(javascript", text)
    page = html.unescape(text.replace("\\&", "&amp;")).replace("\\", "")
    assert not LIVE.search(page), "nobody is called, and nothing leads away"
    _check_tables(text)
    write_output(tmp_path / "rows.csv", job.folder, evaluator, request.options)
    cells = [cell for row in csv.reader((tmp_path / "rows.csv").open(encoding="utf-8", newline="")) for cell in row]
    assert cells
    assert not [cell for cell in cells if cell.startswith(FORMULA) and not re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)]
    shown = evalq("report", tmp_path / "run", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert not CONTROL.search(shown.stdout + shown.stderr)


def _check_tables(text: str) -> None:
    """Every row of a Markdown table has as many cells as its head."""
    width = 0
    for line in text.splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not width or not cells or cells == width, line
        width = cells


def test_an_error_shows_hostile_names_harmlessly(tmp_path: Path) -> None:
    """A file's name with escapes in it is printed without them."""
    name = "x\x1b[31m\u202e.csv"
    (tmp_path / name).write_bytes(b"a;b\n1;2\n")
    done = evalq("planagent", name, "--inline", cwd=tmp_path)
    assert done.returncode == 2
    assert not CONTROL.search(done.stderr)
