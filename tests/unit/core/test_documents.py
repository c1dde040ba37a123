"""YAML is read as its core schema says, JSON as JSON, and YAML that evalq writes is read alike everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some

from evalq.evalcore.contract.params import load_mapping
from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.records import yaml as core_yaml
from evalq.evalcore.records.yaml import DocumentFault, KeyLines, read_document
from evalq.producer.importing.reading import read_yaml
from evalq.producer.outputs.final import yaml_text
from tests.unit.core.made.yaml_scalars import same, shown

TABLE = json.loads((Path(__file__).parent / "made" / "yaml_scalars.json").read_text())
SCALARS = TABLE["scalars"]
# YAML 1.2.2 has no sign before 0x, no 0b, no underscores, no dates; ruamel keeps those of 1.1 (and merges `<<`).
RUAMEL_OWN = r"[-+]0[xo][0-9a-f]+|-?0b[01]+|[0-9.x]*[0-9o]*_[0-9_fe+.]*|.*\d{4}-\d\d-\d\d.*|=|<<|-?\.5e[13]|1e400"


def _read(text: str, loader: Any) -> tuple[str, str]:
    try:
        return shown(core_yaml._with(loader, f"k: {text}\n", lambda opened: opened.get_single_data())["k"])
    except (yaml.YAMLError, ValueError):
        return "error", ""


@pytest.mark.parametrize(("text", "js"), [(text, js) for text, js, _ in SCALARS])
def test_scalars_are_what_js_yaml_reads(text: str, js: list[str]) -> None:
    """By js-yaml's core schema itself; through PyYAML's Python, and through libyaml where it does not refuse."""
    assert same(js, _read(text, core_yaml._Plain)), (js, _read(text, core_yaml._Plain))
    try:
        found = shown(read_document(f"k: {text}\n", "a.yaml")["k"])
    except DocumentFault:
        found = ("error", "")
    assert same(js, found)


def test_the_table_is_of_both_programs() -> None:
    """At least 200 scalars; where ruamel's 1.2 mode differs it is one of the forms that YAML 1.2 does not have."""
    import re

    assert len(SCALARS) >= 200
    assert set(TABLE["versions"]) == {"js-yaml", "ruamel.yaml"}
    differing = [text for text, js, ruamel in SCALARS if not same(js, ruamel)]
    assert [text for text in differing if not re.fullmatch(RUAMEL_OWN, text)] == []


_SIGNS = "0123456789+-.:_exoXbyYnNtrufalsTRUE~=<> '\"#&*!|>%@`{}[],?\n\u00e9\ud55c\U0001f600"
TEXTS = some.text(_SIGNS, max_size=14)
# A lone ! is null to PyYAML, and an empty text to libyaml.
UNTAGGED = some.text(_SIGNS.replace("!", ""), max_size=14)
WORDS = some.sampled_from([text for text, _, _ in SCALARS])


@settings(max_examples=600, deadline=None)
@given(
    some.dictionaries(TEXTS | WORDS, TEXTS | WORDS | some.floats() | some.integers() | some.booleans() | some.none())
)
def test_what_is_written_is_read_alike_by_both_versions(document: dict[str, Any]) -> None:
    """Keys and values, by YAML 1.1 (PyYAML) and by 1.2; with the dumper in Python and with libyaml's."""
    text = yaml_text(document)
    wanted = repr(document)
    assert repr(yaml.safe_load(text)) == wanted
    assert repr(core_yaml.load(text)) == wanted


@settings(max_examples=300, deadline=None)
@given(
    some.lists(UNTAGGED | WORDS, max_size=6).map(lambda parts: "".join(f"k{at}: {t}\n" for at, t in enumerate(parts)))
)
def test_libyaml_changes_nothing(text: str) -> None:
    """What both read they read alike; what libyaml refuses is read as without it."""
    if core_yaml._Fast is None:
        pytest.skip("PyYAML without libyaml: there is one way alone")

    def read(loader: Any) -> str:
        try:
            return repr(core_yaml._with(loader, text, lambda opened: opened.get_single_data()))
        except (yaml.YAMLError, ValueError):
            return "error"

    fast, plain = read(core_yaml._Fast), read(core_yaml._Plain)
    assert fast in ("error", plain) or plain == "error"


def test_a_suite_of_yesterday(tmp_path: Path) -> None:
    """Zip codes, times, merge keys and dates are what stands there; keys twice are refused with the line."""
    file = tmp_path / "a.yaml"
    file.write_text(
        "a: &a {at: 12:30, day: 2026-01-31, zip: 0123}\n"
        "b:\n  <<: *a\n  country: NO\n  on: off\n  eq: =\n  small: 1e-07\n  none: ~\n  hex: 0x1f\n  oct: 0o17\n"
    )
    assert load_mapping(file)["b"] == {
        "at": "12:30",
        "day": "2026-01-31",
        "zip": 123,
        "country": "NO",
        "on": "off",
        "eq": "=",
        "small": 1e-07,
        "none": None,
        "hex": 31,
        "oct": 15,
    }
    file.write_text("a: 1\nb:\n  c: 1\n  0x10: 1\n  16: 2\n")
    with pytest.raises(ConfigError, match=r"a\.yaml:5: not YAML: the key '16' occurs twice, first as '0x10'"):
        load_mapping(file)


JSON_SAID = (
    '{"small": 1e-07,\n\t"face": "\\ud83d\\ude00", "no": "no",\n "deep": [1,\n  {"x": "a:b, [c]", "y": [2, "z"]}]}'
)


def test_json_is_read_as_json(tmp_path: Path) -> None:
    """By the reader of parameters, of cases and of imports: numbers, escapes and tabs; faults have their lines."""
    file = tmp_path / "a.json"
    file.write_text(JSON_SAID)
    wanted = json.loads(JSON_SAID)
    assert load_mapping(file) == wanted
    document = read_yaml(file)
    assert document.data == wanted
    assert document.where(["deep", 1, "y", 1]).startswith(f"{file}:4:")
    assert document.where(["face"]).startswith(f"{file}:2:")
    assert KeyLines(JSON_SAID, "a.json").line(["deep", 1, "nothing"]) == 4
    for text, line in (('{"a": 1,\n"b": {"a": 1,\n "a": 2}}', 3), ('{"a": 1,\n}', 2), ('{"a": [1]\n, "b": [}', 2)):
        file.write_text(text)
        for read in (load_mapping, read_yaml):
            with pytest.raises(ConfigError, match=rf"a\.json:{line}: not JSON"):
                read(file)
    for text in ('{"a": NaN}', '{"a": -Infinity}'):
        file.write_text(text)
        with pytest.raises(ConfigError):
            load_mapping(file)


@pytest.mark.parametrize("word", ["yes", "No", "on", "OFF", "y"])
def test_where_a_boolean_is_needed_the_fault_says_what_to_write(tmp_path: Path, word: str) -> None:
    """A check's option, a check that takes nothing, and a parameter."""
    meant = "true" if word.lower() in ("yes", "on", "y") else "false"
    file = tmp_path / "cases.yaml"
    said = rf"{word} is text in YAML 1\.2: write {meant}"
    for check in (f"{{equals: x, ignore-case: {word}}}", f"{{contains-json: {word}}}", f"{{refusal: {word}}}"):
        file.write_text(f"cases:\n- id: a\n  checks:\n  - {check}\n")
        with pytest.raises(ConfigError, match=rf"cases\.yaml:4: .*{said}"):
            load_cases([file])


def test_nothing_deep_ends_the_process() -> None:
    """Nesting of any depth is refused by a fault."""
    for text in ("[" * 200_000, "- " * 200_000 + "a", "? " * 200_000 + "a", "{a: " * 200_000):
        with pytest.raises(DocumentFault):
            read_document(text, "a.yaml")
    with pytest.raises(DocumentFault):
        read_document("[" * 200_000 + "]" * 200_000, "a.json")
