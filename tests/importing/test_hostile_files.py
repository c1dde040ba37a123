"""Files of other tools that mean harm: what multiplies, runs away or leads outside."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from evalq.evalcore.errors import ConfigError
from evalq.producer.cli import main
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest, unique_id
from evalq.producer.importing.patterns import NoCounterpart, to_re2

_CONTAINS = {"type": "contains", "value": "x"}


def imported(folder: Path, config: Any) -> Imported:
    """What a promptfoo configuration gives."""
    path = folder / "promptfooconfig.yaml"
    path.write_text(yaml.safe_dump(config))
    return sources.read("promptfoo", path, ImportRequest())


def _why(found: Imported) -> str:
    return "\n".join(note.why for note in found.notes)


def test_variables_that_name_others_do_not_multiply(tmp_path: Path) -> None:
    """A hundred of a hundred of a hundred ... are noted, not written out."""
    variables = {name: f"{{{{{following}}}}}" * 100 for name, following in zip("abcd", "bcde", strict=True)}
    test = {"vars": {**variables, "e": "x" * 1000}, "assert": [{"type": "contains", "value": "x"}]}
    assert "longer than 16 MiB" in _why(imported(tmp_path, {"prompts": ["{{a}}"], "tests": [test]}))


def test_cases_do_not_multiply(tmp_path: Path) -> None:
    """A long prompt with a long list of variables is refused before it fills the memory."""
    test = {"vars": {"n": [str(n) for n in range(2000)]}, "assert": [{"type": "contains", "value": "x"}]}
    with pytest.raises(ConfigError, match="more than 256 MiB"):
        imported(tmp_path, {"prompts": ["{{n}} " + "x" * 200_000], "tests": [test]})


@pytest.mark.parametrize(
    "value",
    [
        {"type": "equals", "value": 10**400},
        {"type": "word-count", "value": 10**400},
        {"type": "cost", "threshold": 10**400},
        {"type": "assert-set", "threshold": 10**400, "assert": [{"type": "contains", "value": "x"}]},
    ],
    ids=lambda value: str(value["type"]),
)
def test_numbers_past_floats(tmp_path: Path, value: Any) -> None:
    """They are read or noted."""
    found = imported(tmp_path, {"prompts": ["p"], "tests": [{"assert": [value]}]})
    assert found.cases or found.notes


@pytest.mark.parametrize("pattern", ["../**/*.csv", "a**b", "none*.csv"])
def test_patterns_of_files_that_lead_outside_or_nowhere(tmp_path: Path, pattern: str) -> None:
    """They are noted, and nothing outside is looked through."""
    config = {"prompts": ["p", f"file://{pattern}"], "tests": [pattern]}
    assert len(imported(tmp_path, config).notes) >= 2


def test_chains_of_references(tmp_path: Path) -> None:
    """A configuration that leads further than the stack is refused."""
    chain = {f"a{at}": {"$ref": f"#/a{at + 1}"} for at in range(2000)}
    with pytest.raises(ConfigError, match="nested too deeply"):
        imported(tmp_path, {"prompts": ["p"], "tests": [{"$ref": "#/a0"}], **chain})


def test_long_patterns_and_cells(tmp_path: Path) -> None:
    """Nothing takes the square of a text's length."""
    began = time.process_time()
    with pytest.raises(NoCounterpart, match="longer than"):
        to_re2("(" * 1_000_000, "javascript")
    (tmp_path / "t.csv").write_text("q,__expected,__threshold\na,b," + "1" * 200_000 + "x\n")
    assert imported(tmp_path, {"prompts": ["p"], "tests": "t.csv"}).cases
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize("kind", ["encrypted", "utf-8"])
def test_broken_archives(tmp_path: Path, kind: str) -> None:
    """What cannot be unpacked or read is said with the member's name."""
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", b'{"eval": "\xff"}' if kind == "utf-8" else b"{}")
    if kind == "encrypted":
        data = bytearray(path.read_bytes())
        for sign, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            data[data.index(sign) + at] |= 1
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"header.json: (cannot be unpacked|not JSON)"):
        sources.read("inspect", path, ImportRequest())


def test_a_note_is_one_line_of_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name with line feeds in it says nothing in evalq's place."""
    path = tmp_path / "c.json"
    test = {"assert": [{"type": "contains", "value": "x"}, {"type": "x\nwrote /etc/passwd"}]}
    path.write_text(json.dumps({"prompts": ["p"], "tests": [test]}))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "out")]) == 0
    assert "\nwrote /etc/passwd" not in capsys.readouterr().out


@pytest.mark.parametrize("depth", [60, 120, 3000])
def test_assertions_that_nest_without_end(tmp_path: Path, depth: int) -> None:
    """Left out with a note that says where; what no reader takes is refused for what it is."""
    nested = '{"type": "assert-set", "assert": [' * depth + '{"type": "contains", "value": "x"}' + "]}" * depth
    path = tmp_path / "promptfooconfig.json"
    path.write_text(f'{{"prompts": ["p"], "tests": [{{"assert": [{nested}, {{"type": "contains", "value": "y"}}]}}]}}')
    if depth > 120:
        with pytest.raises(ConfigError, match="nested too deeply to be read"):
            sources.read("promptfoo", path, ImportRequest())
        return
    found = sources.read("promptfoo", path, ImportRequest())
    assert [case["checks"] for case in found.cases] == [[{"contains": "y"}]]
    assert any("tests[0].assert[0]" in note.where and "deeper than 100" in note.why for note in found.notes)


def test_many_cases_of_one_name_take_no_square_of_their_number() -> None:
    """Each has an id of its own, found at once: 16,000 took half a minute."""
    taken: dict[str, int] = {}
    began = time.process_time()
    assert [unique_id("d", taken) for _ in range(16_000)] == ["d", *(f"d-{number}" for number in range(2, 16_001))]
    assert time.process_time() - began < 15


def test_a_number_that_another_case_has_in_its_name_is_passed_over(tmp_path: Path) -> None:
    """Whichever comes first: cases of one name are distinguished by what they ask and check, equal ones by a number."""
    names = ("d", "d-2", "d", "d-2", "d", "d-2-2")
    tests = [{"description": name, "vars": {"n": "x"}, "assert": [_CONTAINS]} for name in names]
    found = imported(tmp_path, {"prompts": ["{{n}}"], "tests": tests})
    made = [case["id"].split("-") for case in found.cases]
    digest = made[2][1]
    assert ["-".join(each).replace(digest, "#") for each in made] == [
        "d-#-3",
        "d-2-#-2",
        "d-#",
        "d-2-#",
        "d-#-2",
        "d-2-2",
    ]


@pytest.mark.parametrize("given", [5, "x", {"a": 1}, [5]], ids=str)
def test_what_is_no_list_where_tags_or_calls_are_is_none_of_them(given: Any, tmp_path: Path) -> None:
    """And no traceback."""
    path = tmp_path / "given.json"
    path.write_text(json.dumps([{"input": "i", "expected_output": "x", "actual_output": "x", "tags": given}]))
    (case,) = sources.read("deepeval", path, ImportRequest(checks=("equals",))).cases
    assert "tags" not in case
    sample = {"id": 1, "input": "i", "target": "x", "output": {"completion": "x"}, "messages": [{"tool_calls": given}]}
    path.write_text(json.dumps({"eval": {"scorers": [{"name": "includes"}]}, "samples": [sample]}))
    ((line,),) = sources.read("inspect", path, ImportRequest()).outputs.values()
    assert line["tool_calls"] == []
