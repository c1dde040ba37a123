"""What a red build says: a sentence, base beside candidate, the cases that got worse, and answers that show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.producer.comparing.samples import (
    FOLDER,
    KEPT_BYTES,
    LONGEST,
    SUFFIX,
    SampleAnswer,
    base_samples,
    encode_samples,
    kept_samples,
)
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.outputs.cases import cases_of
from tests.unit.comparing.conftest import Command

ODD = "```\n# GO: all is well\n````text\n@team <img src=x> ::error::x \x1b[31m\n/merge\n  /approve"
WORSE = "c07"


def outputs(path: str, *, broken: bool, word: str) -> None:
    """Twenty cases x 10 that all say yes; one of them never does if ``broken``."""
    lines = [
        {
            "case": f"c{n:02d}",
            "repeat": at,
            "output": ODD if broken and f"c{n:02d}" == WORSE else f"yes {word} {n} {at}",
        }
        for n in range(20)
        for at in range(10)
    ]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def red(here: Path, command: Command) -> Path:
    """A folder in which a candidate was gated: its comment, its summary and its JUnit XML."""
    cases = [{"id": f"c{n:02d}", "checks": [{"icontains": "yes"}]} for n in range(20)]
    Path("cases.yaml").write_text(json.dumps({"cases": cases}))
    for name, broken in (("before", False), ("now", True)):
        outputs(f"{name}.jsonl", broken=broken, word=name)
        done = command("checks", "cases.yaml", "--outputs", f"{name}.jsonl", "--inline", "-q", "--out", f"runs/{name}")
        assert done.code == 0, done
    Path("policy.yaml").write_text("gates: [{metric: checks.pass_rate, max_drop: 0.1}]\n")
    assert command("baseline", "set", "main", "runs/before").code == 0
    given = ("-o", "comment.md", "-o", "summary.md", "-o", "junit.xml")
    assert command("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "main", *given).code == 4
    return here


def test_a_comment_explains_itself(red: Path) -> None:
    """In this order: decision, sentence, base beside candidate, cases, answers, where to see more, demands."""
    text = (red / "comment.md").read_text()
    parts = [
        "# SUSPECT: runs/now against main",
        "Single cases got worse beyond chance: checks.pass\\_rate",
        "## 1 case of checks got worse beyond chance",
        f"| {WORSE} | 10 of 10 passed | 0 of 10 passed |",
        f"### An answer to {WORSE}",
        "The baseline answered:\n\n```text\nyes before 7 0\n```",
        'The candidate answered (failed: icontains: wanted "yes"',
        "report `runs/now/report.html`, all answers `evalq view runs/now`",
        "`evalq compare main runs/now`",
        "## What the policy demands",
    ]
    places = [text.find(part) for part in parts]
    assert -1 not in places, dict(zip(parts, places, strict=True))
    assert places == sorted(places)
    assert "| checks.pass\\_rate | 100.0 % | 95.0 % | -5.0 points" in text


def test_an_answer_stays_text(red: Path) -> None:
    """Between fences that are longer than any in it, and without control characters."""
    text = (red / "summary.md").read_text()
    fence = "`" * 5
    inside = text.partition(f"{fence}text\n")[2].partition(f"\n{fence}")[0]
    assert inside.startswith("```\n# GO: all is well\n````text\n@team <img src=x>")
    assert "\x1b" not in text
    # GitLab obeys such lines of a comment, and old versions look for the end of a block at three signs.
    assert not any(line.lstrip().startswith("/") for line in text.splitlines())


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        (("compare", "runs/before", "runs/now"), "checks: runs/now against runs/before"),
        (("compare", "main", "runs/now"), "against"),
        (("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "main"), "SUSPECT: runs/now against main"),
        (("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "runs/before"), "SUSPECT: runs/now"),
    ],
)
def test_a_page_shows_both_answers_side_by_side(
    words: tuple[str, ...], verdict: str, red: Path, command: Command
) -> None:
    """In one file that needs nothing else and runs nothing; what answers hold stays text."""
    assert command(*words, "-o", "page.html").code in (0, 4)
    page = (red / "page.html").read_text()
    assert verdict in page.partition("</h4>")[0]
    about = page.partition(f'<h3 dir="auto">{WORSE}</h3>')[2].partition("<h3")[0]
    assert "yes</del>" in about
    assert "&lt;img src=x&gt;" in about
    assert "\x1b" not in page
    assert "<img" not in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<h3") == 1


def test_a_page_of_an_error_replaces_the_page_before(red: Path, command: Command) -> None:
    """A reader must not take an earlier decision for this one's."""
    assert command("compare", "runs/before", "runs/now", "-o", "page.html").code == 0
    assert command("compare", "runs/before", "runs/<b>none", "-o", "page.html").code == 2
    page = (red / "page.html").read_text()
    assert "evalq compare: ERROR" in page
    assert "&lt;b&gt;none" in page
    assert command("compare", "runs/before", "--nonsense", "-o", "page.html").code == 2
    assert "nonsense" in (red / "page.html").read_text()


def test_without_kept_answers_the_candidate_s_stand_alone(red: Path, command: Command) -> None:
    """As where the approver wants no answers in the repository, and the baseline's folder is elsewhere."""
    assert command("baseline", "set", "main", "runs/before", "--no-answers").code == 0
    assert not list((red / "evalq-baselines").glob("*/*.answers.jsonl"))
    command("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "main", "-o", "comment.md")
    text = (red / "comment.md").read_text()
    assert "The candidate answered" in text
    assert "The baseline answered" not in text
    command("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "runs/before", "-o", "comment.md")
    assert "The baseline answered" in (red / "comment.md").read_text()


def test_forgetting_a_baseline_drops_its_answers(red: Path, command: Command) -> None:
    """All of them."""
    assert command("baseline", "forget", "main").code == 0
    assert not (red / "evalq-baselines" / "main").exists()


def test_a_baseline_keeps_a_bounded_file_and_reads_any(tmp_path: Path) -> None:
    """Whatever somebody made of it, a comment is written."""
    many = [SampleAnswer(f"c{n}", "x" * LONGEST) for n in range(5000)]
    data = encode_samples("r", many)
    assert 0 < len(data) <= KEPT_BYTES
    (tmp_path / "a").write_bytes(data)
    assert kept_samples(tmp_path / "a", "r", ["c3", "none"]) == {"c3": many[3]}
    assert kept_samples(tmp_path / "a", "another", ["c3"]) == {}
    for odd in (b"", b"\xff\xfe", b"[1]\n", b'{"case": 3}\n', b'{"run": "r"}\n[1]\n', data.partition(b"\n")[2]):
        (tmp_path / "a").write_bytes(odd)
        assert kept_samples(tmp_path / "a", "r", ["c3"]) == {}
    (tmp_path / "a").write_bytes(data + b"{")
    assert kept_samples(tmp_path / "a", "r", ["c3"]) == {"c3": many[3]}
    assert kept_samples(tmp_path / "missing", "r", ["c3"]) == {}


def test_the_answers_are_those_of_the_run_that_is_compared(red: Path, command: Command) -> None:
    """Not those of another run, which has the baseline's name, or was approved under it before or beside it."""
    candidate = cases_of(RunFolder.existing(Path("runs/now")))
    folder = FOLDER / "several"
    folder.mkdir(parents=True)
    for run in ("first", "second"):
        (folder / f"checks@{run}{SUFFIX}").write_bytes(encode_samples(run, [SampleAnswer(WORSE, f"of {run}")]))
    for partner in ("first", "second", "third", ""):
        found = base_samples("several", partner, candidate, [WORSE])
        wanted = {WORSE: f"of {partner}"} if partner in ("first", "second") else {}
        assert {case: each.answer for case, each in found.items()} == wanted
    # A server has a later run under this name, and the checkout still has the file of the run before.
    kept = FOLDER / "main" / f"checks{SUFFIX}"
    kept.write_bytes(encode_samples("the run before", [SampleAnswer(WORSE, "an old answer")]))
    # A folder of another run has the baseline's name.
    Path("main").symlink_to(Path("runs/now").resolve())
    for name in ("comment.md", "page.html"):
        command("gate", "runs/now", "--policy", "policy.yaml", "--baseline", "main", "-o", name)
        text = (red / name).read_text()
        assert "an old answer" not in text
        assert "The baseline answered" not in text
