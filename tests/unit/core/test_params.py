"""Plain data into params: every wrong key and value is named, with its file and path."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from evalq.evalcore.contract.evaluator import Params
from evalq.evalcore.contract.params import load_mapping, merged, validate
from evalq.evalcore.errors import ConfigError


class Rule(Params):
    """A nested model."""

    kind: Literal["word", "pattern"] = "word"
    words: tuple[str, ...] = ()


class Limits(Params):
    """Nested once more."""

    low: float = 0.25
    most: int = 3
    first: Rule = Rule()


class Whole(Params):
    """Params of every shape that evaluators use."""

    strict: bool = False
    name: str = "n"
    limits: Limits = Limits()
    rules: tuple[Rule, ...] = ()
    bands: tuple[tuple[float, int], ...] = ((0.5, 1),)
    extra: Rule | None = None


def error_of(data: Any) -> str:
    """The message that ``data`` is refused with."""
    with pytest.raises(ConfigError) as caught:
        validate(Whole, data, "run.yaml")
    return str(caught.value)


def test_plain_data_fills_nested_params_and_tuples() -> None:
    """Lists become tuples, mappings become models, what is not given keeps its default; the result can be hashed."""
    data = {"limits": {"low": 1, "first": {"words": ["a", "b"]}}, "rules": [{"kind": "pattern"}], "bands": [[0.75, 4]]}
    params = validate(Whole, data, "run.yaml")
    assert params.limits == Limits(low=1.0, first=Rule(words=("a", "b")))
    assert params.rules == (Rule(kind="pattern"),)
    assert params.bands == ((0.75, 4),)
    assert params.name == "n"
    assert hash(params) == hash(validate(Whole, data, "elsewhere"))
    assert validate(Whole, {}, "run.yaml") == Whole()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"stric": True}, "stric: unknown key (known here: bands, extra, limits, name, rules, strict)"),
        ({"limits": {"hi": 1}}, "limits.hi: unknown key (known here: first, low, most)"),
        ({"limits": {"first": {"word": "a"}}}, "limits.first.word: unknown key (known here: kind, words)"),
        ({"rules": [{}, {"word": 1}]}, "rules.1.word: unknown key (known here: kind, words)"),
        ({"extra": {"word": 1}}, "extra.word: unknown key (known here: kind, words)"),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_its_neighbours(data: dict[str, Any], said: str) -> None:
    """At the top, in nested params, in a list of them and in an optional one."""
    assert error_of(data) == f"run.yaml: wrong parameters\n  {said}"


@pytest.mark.parametrize(
    ("data", "path", "shown"),
    [
        ({"strict": "yes"}, "strict", '"yes"; yes is text in YAML 1.2: write true'),
        ({"strict": "true"}, "strict", '"true"'),
        ({"strict": 1}, "strict", "1"),
        ({"name": 3}, "name", "3"),
        ({"name": None}, "name", "null"),
        ({"limits": {"most": 2.5}}, "limits.most", "2.5"),
        ({"limits": {"low": "0.5"}}, "limits.low", '"0.5"'),
        ({"limits": 3}, "limits", "3"),
        ({"rules": {"kind": "word"}}, "rules", '{"kind": "word"}'),
        ({"rules": [{"kind": "words"}]}, "rules.0.kind", '"words"'),
        ({"limits": {"first": {"words": "cooperate"}}}, "limits.first.words", '"cooperate"'),
        ({"bands": [[0.5]]}, "bands.0.1", "[0.5]"),
        ({"name": "\ud800"}, "(top level)", ""),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_shown(data: dict[str, Any], path: str, shown: str) -> None:
    """Types are strict: no number for a text, no text for a number, no text in a list's place."""
    line = error_of(data).split("\n")[1]
    assert line.startswith(f"  {path}: ")
    assert f"got {shown}" in line


def test_every_fault_is_reported_at_once() -> None:
    """Not only the first."""
    message = error_of({"strict": 0, "nam": "x", "limits": {"most": "3", "lo": 1}})
    assert [line.split(":")[0].strip() for line in message.split("\n")[1:]] == [
        "strict",
        "limits.most",
        "limits.lo",
        "nam",
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {1, 2}, object(), b"x"])
def test_what_json_cannot_say_is_no_parameter(value: Any) -> None:
    """Not a number, infinities and other objects would have no place in the report."""
    message = error_of({"limits": {"low": value}})
    assert message.startswith("run.yaml: not plain JSON data: ")


EMPTY = "Tuple should have at least 1 item after validation, not 0, got []"


class Listed(Params):
    """Lists that may not be empty, one of them within another."""

    class Inner(Params):
        """An entry with a list of its own."""

        words: tuple[str, ...] = Field(min_length=1)

    inner: tuple[Inner, ...] = Field(min_length=1)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"inner": [{"word": ["a"], "words": ["a"]}]}, ["inner.0.word: unknown key (known here: words)"]),
        ({"inner": [{"words": [1]}]}, ["inner.0.words.0: Input should be a valid string, got 1"]),
        (
            {"inner": [{"words": []}]},
            [f"inner.0.words: {EMPTY}"],
        ),
        ({"inner": []}, [f"inner: {EMPTY}"]),
    ],
)
def test_a_list_with_a_wrong_entry_is_not_said_to_be_empty(data: Any, said: list[str]) -> None:
    """The entry alone is mentioned; a list that is empty is one."""
    with pytest.raises(ConfigError) as caught:
        validate(Listed, data, "run.yaml")
    assert str(caught.value).splitlines()[1:] == [f"  {line}" for line in said]


def test_data_that_holds_itself_is_refused() -> None:
    """YAML can write a list inside itself."""
    loop: list[Any] = []
    loop.append(loop)
    assert "not plain JSON data" in error_of({"rules": loop})


def test_a_long_value_is_cut_short_in_the_message() -> None:
    """A message stays readable."""
    assert len(error_of({"strict": "x" * 10_000})) < 300


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("a.yaml", "limits:\n  low: 0.5\n", {"limits": {"low": 0.5}}),
        ("a.yml", "{}", {}),
        ("a.json", '{"x": [1, null]}', {"x": [1, None]}),
        ("a.yaml", '{"x": "\\u00e9"}', {"x": "é"}),
    ],
)
def test_yaml_and_json_files_are_read(name: str, text: str, data: dict[str, Any], tmp_path: Path) -> None:
    """By their ending."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert load_mapping(tmp_path / name) == data


def test_keys_that_only_look_alike_are_two(tmp_path: Path) -> None:
    """Text beside a number, a lone equals sign, and what a merge brings in beside one's own."""
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {1: x, '1': y, 'true': z, =: w}\nb: {<<: *a, 1: own, 1.5: more}\nc: {<<: [*a, *a]}\n")
    one = {1: "x", "1": "y", "true": "z", "=": "w"}
    assert load_mapping(path) == {"a": one, "b": {**one, 1: "own", 1.5: "more"}, "c": one}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", b"x: 1\ny: [1,\n  z 2\nw: }\n", ":4: not YAML: "),
        ("a.yaml", b"x: 1\n\tz: 2\n", ":2: not YAML: "),
        ("a.yaml", b"x: !!python/object:os.system 1\n", ":1: not YAML: "),
        ("a.yaml", b"x: &a 1\nx: *b\n", ":2: not YAML: "),
        ("a.yaml", b"x: 1\ny: \x00\n", "not YAML: "),
        ("a.yaml", b"x: !!int one\n", ":1: not YAML: 'one' is no int in YAML 1.2"),
        ("a.yaml", b"[" * 600, "nested too deeply"),
        ("a.yaml", b"x:\n  y: 0.05\n  y: 1\n", ":3: not YAML: the key 'y' occurs twice"),
        ("a.yaml", b"x: [{y: 1, 'y': 1}]\n", ":1: not YAML: the key 'y' occurs twice"),
        ("a.yaml", b"x:\n  True: 1\n  true: 2\n", ":3: not YAML: the key 'true' occurs twice, first as 'True'"),
        ("a.yaml", b"x: {1: a, 1.0: b}\n", ":1: not YAML: the key '1.0' occurs twice, first as '1'"),
        ("a.yaml", b"x: {1: a, 0x1: b}\n", ":1: not YAML: the key '0x1' occurs twice, first as '1'"),
        ("a.yaml", b"x: {.nan: a, .nan: b}\n", ":1: not YAML: the key '.nan' occurs twice"),
        ("a.yaml", b"x: {!!set y: 1}\n", ":1: not YAML: "),
        ("a.yaml", b"x: {!!int one: 1}\n", ":1: not YAML: 'one' is no int in YAML 1.2"),
        ("a.json", b'{"x": {"y": 1, "y": 2}}', "the key 'y' occurs twice"),
        ("a.json", b'{"x": ' + b"[" * 100_000, "nested too deeply"),
        ("a.json", b'{"x": ' + b"1" * 5000 + b"}", "holds a value that cannot be read: "),
        ("a.json", b'{"x": 1,\n "y" 2}', ":2: not JSON: "),
        ("a.json", b"", ":1: not JSON: "),
        ("a.yaml", b"x: \xff\n", ": not UTF-8"),
        ("a.yaml", b"- x\n", ": the top level must be a mapping"),
        ("a.yaml", b"", ": the top level must be a mapping of names to values, but the file is empty"),
        ("a.yaml", b"# x: 1\n", ": the top level must be a mapping of names to values, but the file is empty"),
        ("a.yaml", b"1: x\n", ": the top level must be a mapping"),
        ("a.json", b"[]", ": the top level must be a mapping"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    """A ConfigError, and no other exception, whatever is in the file; nothing in it is run."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_mapping(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match=r"no\.yaml: cannot be read: No such file"):
        load_mapping(tmp_path / "no.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read: not a plain file \(a pipe, a device or a folder\)"):
        load_mapping(tmp_path)


def test_a_pipe_without_a_writer_is_refused_and_one_from_the_shell_is_read(tmp_path: Path) -> None:
    """A pipe in a folder that somebody else filled ends at once; what ``<(command)`` hands over is a file like any."""
    os.mkfifo(tmp_path / "params.yaml")
    for path in (tmp_path / "params.yaml", "/dev/zero"):
        with pytest.raises(ConfigError, match="cannot be read: not a plain file"):
            load_mapping(path)
    given, writer = os.pipe()
    os.write(writer, b"a: 1")
    os.close(writer)
    assert load_mapping(f"/dev/fd/{given}") == {"a": 1}
    os.close(given)


def test_later_values_are_laid_over_mapping_by_mapping() -> None:
    """Keys beside stay; a list or a number replaces what was there, also a mapping; the inputs stay as they were."""
    base = {"a": {"b": 1, "c": {"d": 2}}, "e": [1, 2], "f": {"g": 1}}
    over = {"a": {"c": {"d": 3, "h": 4}}, "e": [3], "f": None, "i": {}}
    before = json.dumps([base, over])
    assert merged(base, over) == {"a": {"b": 1, "c": {"d": 3, "h": 4}}, "e": [3], "f": None, "i": {}}
    assert json.dumps([base, over]) == before


TREES = st.recursive(
    st.integers(0, 3), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPPINGS, MAPPINGS)
def test_every_path_of_the_later_mapping_wins(base: dict[str, Any], over: dict[str, Any]) -> None:
    """Merging is the same as setting each leaf of the later mapping on its path, and is idempotent."""
    result = merged(base, over)
    assert merged(result, over) == result
    assert merged(base, {}) == base
    assert merged({}, over) == over
    for key, value in over.items():
        mapping = isinstance(base.get(key), dict) and isinstance(value, dict)
        assert result[key] == (merged(base[key], value) if mapping else value)
