"""`python` assertions that are one closed expression are checks with the verdicts that Python gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.checks.answer import CheckedAnswer
from evalq.evalcore.evaluators.checks.check import compile_check
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest

CHECKED = (
    '"Paris" in output',
    '"paris" in output.lower()',
    "'error' not in output",
    'output == "Paris"',
    'output.strip() != "Paris"',
    'output.strip().lower() == "paris"',
    '"Paris" == output',
    'output == ""',
    'output.startswith("Paris")',
    'output.lower().endswith(".")',
    "len(output) <= 6",
    "len(output) > 6",
    "5 == len(output)",
    "len(output) != 5",
    "3 < len(output) < 9",
    "len(output.split()) >= 2",
    "len(output.strip().split()) == 2",
    "len(output.splitlines()) == 1",
    'not ("is" in output and len(output) > 9)',
    'output == "paris" or "two" in output',
    'any(w in output for w in ["Paris", "two"])',
    'all(w in output.lower() for w in ("it", "paris"))',
    'any([word in output for word in ["Paris"]])',
    'return "Paris" in output',
    'context["vars"]["city"] in output',
)
ANSWERS = (
    *("Paris", "paris", " Paris\n", "Paris.", "It is Paris.", "", "error", "two words", "two\nlines here", "a\u2028b"),
    *("é" * 6, "😀" * 6, "\x1c two \x85 words", "PARIS, IT IS"),
)
NOT_CHECKED = (
    "len(output)",
    "output",
    "True",
    "output in 'Paris'",
    "'a' in output.split()",
    "len(output.split(',')) > 1",
    "len(output.strip()) > 1",
    "'Paris' in output.lower()",
    "'a' in output.strip()",
    "output.count('a') > 1",
    "__import__('os').system('true') == 0",
    "open('/etc/passwd').read() in output",
    "any(w in output for w in context['vars']['city'])",
    "any(w in output for w in ['a'] if w)",
    "any(v in output for w in ['a'])",
    "'' in output",
    "import re\nreturn re.search('a', output)",
    "output == 1",
    "len(output) < 0",
    "(lambda: True)()",
    "not " * 500 + "'a' in output",
    "(" * 300 + "'a' in output" + ")" * 300,
    "context['vars']['absent'] in output",
)


def _imported(folder: Path, *programs: str, kind: str = "python") -> Imported:
    tests = [{"vars": {"city": "Paris"}, "assert": [{"type": kind, "value": each}]} for each in programs]
    path = folder / "promptfooconfig.json"
    path.write_text(json.dumps({"prompts": ["?"], "tests": tests}))
    return sources.read("promptfoo", path, ImportRequest())


@pytest.mark.parametrize("program", CHECKED)
def test_each_expression_decides_as_python_does(program: str, tmp_path: Path) -> None:
    """Beside every answer, and its opposite, too."""
    said = []
    for kind in ("python", "not-python"):
        (case,) = _imported(tmp_path, program, kind=kind).cases
        check = compile_check(case["checks"][0])
        for answer in ANSWERS:
            known = {"output": answer, "context": {"vars": {"city": "Paris"}}}
            theirs = eval(program.removeprefix("return "), known)  # noqa: S307 - the programs above
            said.append(theirs)
            assert check.judge(CheckedAnswer(answer)).passed is (theirs if kind == "python" else not theirs), answer
    assert set(said) == {True, False}


@pytest.mark.parametrize("program", NOT_CHECKED)
def test_any_other_program_is_listed_by_its_name(program: str, tmp_path: Path) -> None:
    """No part of it becomes a check, and none is run."""
    imported = _imported(tmp_path, program)
    assert not imported.cases
    assert "python" in {note.what for note in imported.notes}
