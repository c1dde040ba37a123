"""JUnit of checks: a testcase a case, of one run and of a suite, whatever the ids and answers hold."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from evalq.producer.cli import main
from evalq.producer.outputs import junit
from tests.unit.checks.helpers import line

CASES = [{"id": case, "expected": "yes"} for case in ("fine", "<odd> & \u202e\x07", "broken", "silent")]
LINES = [
    *(line("fine", repeat) for repeat in range(2)),
    *(line("<odd> & \u202e\x07", repeat, answer) for repeat, answer in enumerate(("yes", "]]> no"))),
    b'{"case": "broken", "repeat": 0, "error": "timeout"}',
]
SUITE = """
suite: nightly
runs: [{evaluator: checks, cases: [cases.yaml], outputs: [outputs.jsonl]}]
outputs: [gate.xml]
policy: {gates: [{metric: checks.pass_rate, min: 0.9}]}
"""


def test_every_case_is_a_testcase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what failed of it as the message; what was never answered is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.yaml").write_text(json.dumps({"cases": CASES}))
    (tmp_path / "outputs.jsonl").write_bytes(b"\n".join(LINES))
    (tmp_path / "suite.yaml").write_text(SUITE)
    command = ("checks", "cases.yaml", "--outputs", "outputs.jsonl", "--inline", "--format", "none")
    assert main([*command, "-o", "run.xml", "--out", "run"]) == 0
    assert main(["run", "suite.yaml", "--inline", "--format", "none"]) == 4
    for file, group in (("run.xml", "evalq.checks"), ("gate.xml", "evalq.nightly.checks")):
        tree = Tree.parse(file)  # noqa: S314 - written by this very test
        found = [each for each in tree.iter("testcase") if each.get("classname") == group]
        states = {(case.get("name") or "").partition(" ")[0]: [part.tag for part in case] for case in found}
        assert states == {"fine": [], "<odd>": ["failure"], "broken": ["error"]}, file
        (failure,) = tree.iterfind(f".//testcase[@classname='{group}']/failure")
        assert failure.get("message") == "1 of 2 answers passed"
        assert not {"\u202e", "\x07"} & set(Path(file).read_text())


def test_many_of_one_name_take_no_square_of_their_number() -> None:
    """Each under a name of its own."""
    began = time.process_time()
    same = [junit.Testcase("same") for _ in range(20_000)]
    tree = Tree.fromstring(junit.junit("n", [junit.JunitSuite("s", "g", same)]))  # noqa: S314 - the same
    assert len({each.get("name") for each in tree.iter("testcase")}) == 20_000
    assert time.process_time() - began < 30
