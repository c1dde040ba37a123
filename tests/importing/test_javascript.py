"""`javascript` assertions that are one closed expression are checks with the verdicts that Node.js gives."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.evalcore.evaluators.checks.params import ChecksParams
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, write

CHECKED = (
    'output.includes("Paris")',
    "output.includes('pa\\nris')",
    "output.toLowerCase().includes('paris')",
    "output.startsWith(`Paris`)",
    'output.endsWith(".")',
    'output === "Paris"',
    'output.trim() == "Paris"',
    'output.toLowerCase() === "paris"',
    'output !== "Paris"',
    "output.length < 7",
    "output.length <= 5",
    "output.length > 5",
    "6 >= output.length",
    "output.length === 5",
    "output.length !== 5",
    r"/^par(is|y)\b/i.test(output)",
    r"/[/a]\d+/.test(output)",
    "JSON.parse(output).path === '/tmp'",
    "JSON.parse(output).items[1].price === 9.5",
    "JSON.parse(output).done === true && JSON.parse(output).path === null",
    '!output.includes("error")',
    '!(output.includes("a") && output.length > 5)',
    'output.includes("Paris") || (output.length < 3 && !/x/.test(output))',
    "return output.includes('Paris');",
    "output.includes(context.vars.city)",
    "output.includes('a') ? 1 : 0",
    "output.length <= 5 ? true : false;",
    "output.includes('a') ? false : true",
    "output.split(' ').length < 3",
    "output.split(' ').length >= 2",
    r"output.split(/\s+/).length <= 2",
    r"output.trim().split(/\s+/).length === 2",
    r"output.trim().split(/\s+/).length > 2",
    r"output.trim().split(/\s+/).length <= 2",
    r"output.split('\n').length !== 1",
    "output.trim().length > 0",
    "output.trim().length === 0",
    "JSON.parse(output).path.includes('/x')",
    "JSON.parse(output).path.toLowerCase() !== '/tmp'",
    "JSON.parse(output).path.trim() === '/tmp'",
    "JSON.parse(output).path.length > 4",
    "JSON.parse(output).path.length === 1",
    "JSON.parse(output).path.length !== 4",
    "JSON.parse(output).done.length <= 2",
    "!JSON.parse(output).path.includes('/x')",
    "/^.tmp$/.test(JSON.parse(output).path)",
    "!(JSON.parse(output).done === true)",
    "!(JSON.parse(output).items[1].price === 9.5)",
    "JSON.parse(output).items[1].price > 9 ? 0 : 1",
    "!JSON.parse(output).path.startsWith('/tmp/')",
    "JSON.parse(output).score >= 4",
    "JSON.parse(output).score > 4 && JSON.parse(output).score <= 10",
    "JSON.parse(output).path.endsWith('x') ? 0 : 1",
)
ANSWERS = (
    *(
        "Paris",
        "paris",
        " Paris\n",
        "Paris.",
        "It is Paris.",
        "PARIS is big",
        "",
        "pa\nris",
        "pary",
        "a1",
        "/2",
        "error",
        "  two words ",
        "three short words",
        "two\n lines  here",
        "\u00a0a\u2003b c\ufeff",
        "\ufeff",
        "\x1c\x85",
        " ",
    ),
    *(
        '{"path": "/tmp"}',
        '{"items": [0, {"price": 9.5}]}',
        '{"items": [0, {"price": 1}]}',
        '{"items": [0, null]}',
        '{"items": [0, 1]}',
        '{"done": true, "path": null}',
        '{"done": 1}',
        '{"done": {}, "path": ["/x"]}',
        '{"done": "no", "path": ["/xy", "/y"]}',
        '{"score": 4}',
        '{"score": 4.5, "path": " /TMP "}',
        '{"score": 11}',
        "[]",
        "null",
    ),
    *('"path"', '{"path": "/tmp/x"}', "{", 'x {"path": "/tmp"}', '```json\n{"path": "/tmp"}\n```'),
)
NOT_CHECKED = (
    "output.split(',').length < 5",
    "output.split(' ', 2).length < 5",
    "output.split(' ').length > 0",
    "output.includes('a') ? 1 : 0.5",
    "output.includes('a') ? 1",
    "1 / (output.length - 1)",
    "0 / (output.length + 1)",
    "1 - output.length / 1000",
    "output.length",
    "output.match(/x/)",
    "JSON.parse(output).path == '/tmp'",
    "JSON.parse(output).path !== '/tmp'",
    "output.length < 5 || JSON.parse(output).a === 1",
    "JSON.parse(output).items[0].includes('x')",
    "JSON.parse(output).__proto__.a === 1",
    "JSON.parse(output).score >= '4'",
    "JSON.parse(output)",
    "output.includes('a'); output.includes('b')",
    "output.includes('a') + 1",
    "output.toLowerCase().includes('Paris')",
    "/x/s.test(output)",
    "/(?=x)/.test(output)",
    "output.includes(`${x}`)",
    "output.includes(context.vars.absent)",
    "output.includes('a', 3)",
    "process.exit(1)",
    "output.includes('a') && fetch('http://x')",
    "(" * 200 + "output" + ")" * 200,
    "output.includes('')",
)


def _imported(folder: Path, programs: tuple[str, ...], kind: str = "javascript") -> Imported:
    tests = [{"vars": {"city": "Paris"}, "assert": [{"type": kind, "value": each}]} for each in programs]
    path = folder / "promptfooconfig.json"
    path.write_text(json.dumps({"prompts": ["?"], "tests": tests}))
    return sources.read("promptfoo", path, ImportRequest())


_SCRIPT = """
const [programs, answers] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const context = {vars: {city: "Paris"}};
const said = programs.map((code) => answers.map((output) => {
  const body = code.startsWith("return") ? code : "return " + code;
  try {
    const said = new Function("output", "context", body)(output, context);
    return typeof said === "number" ? said > 0 : said === true;
  } catch { return false; }
}));
console.log(JSON.stringify(said));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is what decides here")
def test_each_expression_decides_as_node_does(tmp_path: Path) -> None:
    """Every program beside every answer; a program that throws fails."""
    given = json.dumps([CHECKED, ANSWERS])
    done = subprocess.run(["node", "-e", _SCRIPT], input=given, capture_output=True, text=True, check=True, timeout=60)
    said: list[list[bool]] = json.loads(done.stdout)
    imported = _imported(tmp_path, CHECKED)
    cases = imported.cases
    assert len(cases) == len(CHECKED), imported.notes
    (written,) = (path for path in write(imported, tmp_path / "evals", force=True).files if path.stem == "cases")
    judge = OutputScorer(ChecksParams.model_validate({"cases": [case.params for case in load_cases([written])]}))
    for program, case, theirs in zip(CHECKED, cases, said, strict=True):
        assert {True, False} == set(theirs), program
        for answer, passed in zip(ANSWERS, theirs, strict=True):
            judged = judge.test(json.dumps({"case": case["id"], "output": answer}).encode())
            assert (judged.status == "passed") == passed, (program, answer, judged)


@pytest.mark.parametrize("program", NOT_CHECKED)
def test_any_other_program_is_listed_by_its_name(program: str, tmp_path: Path) -> None:
    """No part of it becomes a check."""
    imported = _imported(tmp_path, (program,))
    assert not imported.cases
    assert "javascript" in {note.what for note in imported.notes}


@pytest.mark.parametrize("program", ["1 / (output.length + 1)", "100/output.length", "return 1 / (output.length+1);"])
def test_a_score_that_every_answer_passes_is_noted_and_costs_no_check(program: str, tmp_path: Path) -> None:
    """promptfoo takes what is above 0 for a pass."""
    asserts = [{"type": "javascript", "value": program}, {"type": "contains", "value": "x"}]
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"prompts": ["?"], "tests": [{"threshold": 0.5, "assert": asserts}]}))
    found = sources.read("promptfoo", path, ImportRequest())
    assert found.cases[0]["checks"] == [{"contains": "x"}]
    assert [(note.kind, note.what) for note in found.notes] == [("differs", "javascript")]
    assert not _imported(tmp_path, (program,), "not-javascript").cases


def test_the_opposite_of_a_program_is_the_opposite_of_its_check(tmp_path: Path) -> None:
    """But for one that throws without JSON: that fails there either way."""
    (case,) = _imported(tmp_path, ('output.includes("x")',), "not-javascript").cases
    assert case["checks"] == [{"not-contains": "x"}]
    assert not _imported(tmp_path, ("JSON.parse(output).a === 1",), "not-javascript").cases


@pytest.mark.parametrize(
    ("program", "answer", "passes"),
    [
        ("output.name === 'Kim'", '{"name": "Kim"}', True),
        ("output.name === 'Kim'", '{"name": "Lee"}', False),
        ("output.user.tags[0] === 'a' && output.user.age >= 18", '{"user": {"tags": ["a"], "age": 18}}', True),
        ("output.name.toLowerCase().includes('kim')", '{"name": "KIM"}', True),
        ("output.name.toLowerCase().includes('kim')", '{"name": ["kim"]}', False),
        ("/^K/.test(output.name)", '{"name": "Kim"}', True),
        ("!output.name.includes('x')", '{"id": 1}', False),
    ],
)
def test_a_part_of_an_answer_that_is_data_is_read_from_its_json(
    program: str, answer: str, passes: bool, tmp_path: Path
) -> None:
    """And noted: promptfoo's provider gives an object where it is told to."""
    found = _imported(tmp_path, (program,))
    assert any("has to give an object" in note.why for note in found.notes)
    assert compile_check(found.cases[0]["checks"][0]).judge(CheckedAnswer(answer)).passed is passes


@pytest.mark.parametrize("more", [{"threshold": 0.5}, {"config": {"a": 1}}, {"transform": "output.x"}], ids=str)
def test_a_program_with_more_than_its_answer_is_listed(more: dict[str, Any], tmp_path: Path) -> None:
    """It can decide by that."""
    config = {"prompts": ["?"], "tests": [{"assert": [{"type": "javascript", "value": "output.length > 1", **more}]}]}
    (tmp_path / "c.json").write_text(json.dumps(config))
    assert not sources.read("promptfoo", tmp_path / "c.json", ImportRequest()).cases
