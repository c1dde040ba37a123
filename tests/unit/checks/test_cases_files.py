"""Cases files: every form, layers and placeholders, and what is wrong by file, line and key path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.evalcore.evaluators.checks import load_cases
from evalq.evalcore.evaluators.checks.case_files import SizeBudget


def loaded(folder: Path, text: str, name: str = "cases.yaml") -> list[Any]:
    """The cases of a file with this content."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_cases([path])


def refused(folder: Path, text: str, name: str = "cases.yaml") -> str:
    """What is said of a file with this content, without the folder."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, name)
    return str(caught.value).replace(f"{folder}/", "")


def test_layers_lie_over_one_another(tmp_path: Path) -> None:
    """Defaults, template, case: mappings merged by name, checks and tags added up, the rest replaced."""
    [case] = loaded(
        tmp_path,
        """
defaults:
  input: nothing
  vars: {a: 1, b: 1}
  checks: [{max-length: 9}]
  tags: [all]
  weight: 2
  thresholds: {pass-rate: 0.8, score: 0.5}
templates:
  t:
    input: "{{a}} {{b}} {{c}}"
    vars: {b: 2, c: 2}
    checks: [{contains: "{{c}}"}]
    tags: [t, all]
cases:
  - {id: x, template: t, vars: {c: three}, checks: [is-json], thresholds: {pass-rate: 0.9, pass@3: 0.5}, weight: 1}
""",
    )
    assert case.input == "1 2 three"
    assert case.params["checks"] == [{"max-length": 9}, {"contains": "three"}, {"is-json": True}]
    assert case.params["tags"] == ["all", "t"]
    assert case.params["weight"] == 1
    rates = [{"number": "pass-rate", "least": 0.9}, {"number": "pass@3", "least": 0.5}]
    assert case.params["thresholds"] == {"score": 0.5, "rates": rates}


def test_placeholders(tmp_path: Path) -> None:
    """A text that is one placeholder becomes the value; others its text; a value's own braces and \\{{x}} stay."""
    [case] = loaded(
        tmp_path,
        r"""
cases:
  - id: x
    vars: {n: 5, who: {name: "{{n}}"}, list: [a, b]}
    expected: "{{n}} teas"
    input: [{role: user, content: 'for {{who.name}}, \{{n}}, {{ id }}, { {n} }'}]
    checks:
      - {number: "{{n}}"}
      - {contains-any: "{{list}}"}
      - {any: [{equals: "{{expected}}"}, {regex: 'a{{2}}'}]}
""",
    )
    assert case.input[0]["content"] == "for {{n}}, {{n}}, x, { {n} }"
    checks = [{"number": 5}, {"contains-any": ["a", "b"]}, {"any": [{"equals": "5 teas"}, {"regex": "a{{2}}"}]}]
    assert case.params["checks"] == checks


def test_a_name_alone_means_the_expected_answer(tmp_path: Path) -> None:
    """Where a check takes a value; and a case without checks wants what it expects."""
    first, second = loaded(
        tmp_path,
        """
cases:
  - {id: a, expected: {x: 1}}
  - {id: b, expected: yes it is, checks: [contains, not-refusal, any: [equals]]}
""",
    )
    assert first.params["checks"] == [{"equals": {"x": 1}}]
    assert second.params["checks"] == [
        {"contains": "yes it is"},
        {"not-refusal": True},
        {"any": [{"equals": "yes it is"}]},
    ]


def test_the_same_cases_in_every_form(tmp_path: Path) -> None:
    """YAML, JSON, JSONL, CSV, and a CSV that a YAML file takes in, give the same params."""
    cases = [
        {"id": "a", "input": "one, two", "expected": "3", "tags": ["x", "y"], "weight": 2.0, "vars": {"v": "1"}},
        {"id": "b", "input": 'say "hi"\n', "checks": [{"contains": "hi"}], "thresholds": {"pass-rate": 0.5}},
    ]
    table = (
        "id,input,expected,tags,weight,vars.v,checks,thresholds.pass-rate\n"
        'a,"one, two",3,"x, y",2,1,,\n'
        'b,"say ""hi""\n",,,,,"[{""contains"": ""hi""}]",0.5\n'
    )
    (tmp_path / "rows.csv").write_text(table)
    forms = {
        "c.yaml": json.dumps({"cases": cases}),
        "c.json": json.dumps({"cases": cases}),
        "c.jsonl": "\n".join(map(json.dumps, cases)) + "\n\n",
        "c.csv": "\ufeff" + table,
        "d.yaml": "cases: [{file: rows.csv}]",
    }
    found = {name: [case[:2] for case in loaded(tmp_path, text, name)] for name, text in forms.items()}
    assert all(each == found["c.yaml"] for each in found.values())
    assert len(found["c.yaml"]) == 2


def test_every_fault_has_its_line_and_key_path(tmp_path: Path) -> None:
    """All that is wrong with a file is said at once; a template's fault once, with a case that it hurts."""
    said = refused(
        tmp_path,
        """
templates:
  t: {checks: [{contains: "{{nobody}}"}]}
cases:
  - id: greet
    inputt: x
    checks:
      - {contain: y}
      - any: [{max-length: -1}]
  - {id: greet, checks: [is-json]}
  - {id: 7, checks: [is-json]}
  - {id: t1, template: t}
  - {id: t2, template: u, checks: [equals]}
  - {id: n, input: [{role: robot}], checks: [is-json], thresholds: {pass-rte: 0.5, pass-rate: 2}, weight: -1}
  - {id: nothing}
  - 5
""",
    )
    for line in (
        "cases.yaml:6: cases[0].inputt: unknown key; did you mean input? (known here: ",
        "cases.yaml:8: cases[0].checks[0].contain: there is no check 'contain'; did you mean contains?",
        "cases.yaml:9: cases[0].checks[1].any[0].max-length: expected int >= 0",
        "cases.yaml:10: cases[1].id: 'greet' is already the id of cases.yaml, cases[0]",
        "cases.yaml:11: cases[2].id: must be text, found a number",
        "cases.yaml:3: templates.t.checks[0]: {{nobody}} is not a variable (known: id); write \\{{...}} for the text",
        "cases.yaml:13: cases[4].template: 'u' is not a template (there are: t)",
        "cases.yaml:13: cases[4].checks[0]: equals without a value compares with the case's `expected`",
        "cases.yaml:14: cases[5].input[0]: must be a message {role, content}",
        "cases.yaml:14: cases[5].thresholds.pass-rte: unknown key (known here: score, pass-rate, pass@K, pass^K)",
        "cases.yaml:14: cases[5].thresholds.pass-rate: must be a number from 0 to 1",
        "cases.yaml:14: cases[5].weight: must be 0, or a number from 1e-9",
        "cases.yaml:16: cases[7]: must be a mapping, found a number",
    ):
        assert f"\n  {line}" in said, f"{line}\nnot in\n{said}"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.yaml", "cases: []", "cases: must be a list of at least one case"),
        ("c.yaml", "cases:\n  - {id: a}\ncase: 3", "c.yaml:3: case: unknown key"),
        ("c.yaml", "cases: [{id: a}]", "c.yaml:1: cases[0]: nothing is checked"),
        (
            "c.yaml",
            "cases: [{id: a, checks: [{contains: x, weight: 0}]}]",
            "c.yaml:1: cases[0].checks: all checks have",
        ),
        ("c.yaml", "cases: [{id: a, id: b}]", "occurs twice"),
        ("c.yaml", "cases: [{file: ../x.csv}]", "cases[0].file: must name a .jsonl or .csv file next to this one"),
        ("c.yaml", "cases: [{file: none.csv}]", "none.csv: cannot be read: No such file"),
        ("c.yaml", "cases: [{id: a, vars: {expected: 1}, checks: [is-json]}]", "cannot be a variable"),
        ("c.jsonl", '{"id": "a", "expected": "x"}\n{"id": "b", "checks": 5}\n{"id":\n', "c.jsonl:2: checks: must be"),
        ("c.jsonl", '{"id": "a", "expected": "x"}\n{"id":\n', "c.jsonl:2: not JSON"),
        ("c.csv", "id,expectd\na,b\n", "c.csv:1: 'expectd' is not a column of cases"),
        ("c.csv", "id,expected,weight\na,b,c\n", "c.csv:2: weight: 'c' where a number is wanted"),
        ("c.csv", "id,checks\na,[\n", "c.csv:2: checks: not JSON"),
        ("c.csv", "id,expected\na,b,c\n", "c.csv:2: 3 fields where the header has 2"),
        ("c.txt", "", "a cases file ends in"),
        ("c.yaml", "cases: [{id: a, expected: .nan}]", "not plain JSON data"),
        ("c.yaml", "cases: [{id: a, expected: !!binary aGk=}]", ":1: not YAML: could not determine a constructor"),
        ("c.json", '{"cases": [{"id": "a", "expected": "\\ud800"}]}', "half of a surrogate pair"),
        ("c.csv", "id,expected\n", "no case in"),
        ("c.yaml", f"cases: [{{id: {'x' * 501}, expected: y}}]", "cases[0].id: longer than 500 characters"),
        ("c.yaml", "cases: [{id: '', expected: y}]", "cases[0].id: must be text"),
        ("c.yaml", "cases: [{expected: y}]", "cases[0].id: missing: every case needs an id"),
        ("c.yaml", "cases: [{id: a, vars: [b], expected: y}]", "cases[0].vars: must be a mapping, found a list"),
        ("c.yaml", "cases: [{id: a, vars: {id: b}, expected: y}]", "vars.id: 'id' cannot be a variable"),
        ("c.yaml", "cases: [{id: a, input: 5, expected: y}]", "cases[0].input: must be text, a list of chat messages"),
        ("c.yaml", "cases: [{id: a, input: [], expected: y}]", "cases[0].input: must be text, a list of chat messages"),
        (
            "c.yaml",
            "cases: [{id: a, input: [{role: user}], expected: y}]",
            "cases[0].input[0]: must be a message {role",
        ),
        (
            "c.yaml",
            "cases: [{id: a, checks: {contains: x}}]",
            "cases[0].checks: must be a list of checks",
        ),
        ("c.yaml", "cases: [{id: a, tags: t, expected: y}]", "cases[0].tags: must be a list of texts"),
        ("c.yaml", "cases: [{id: a, tags: ['', t], expected: y}]", "cases[0].tags: must be a list of texts"),
        ("c.yaml", f"cases: [{{id: a, tags: {[str(at) for at in range(101)]}, expected: y}}]", "more than 100 tags"),
        (
            "c.yaml",
            "cases: [{id: a, thresholds: 1, expected: y}]",
            "cases[0].thresholds: must be a mapping such as",
        ),
        (
            "c.yaml",
            "cases: [{id: a, thresholds: {score: true}, expected: y}]",
            "thresholds.score: must be a number",
        ),
        ("c.yaml", "cases: [{id: a, weight: true, expected: y}]", "cases[0].weight: must be 0, or a number from 1e-9"),
        ("c.yaml", "cases: [{id: a, weight: 1.1e9, expected: y}]", "cases[0].weight: must be 0, or a number from 1e-9"),
        ("c.yaml", "cases: [{id: a, judge: '', expected: y}]", "cases[0].judge: must be the name of a target"),
        ("c.yaml", "cases: [{id: a, diversity: 5, expected: y}]", "cases[0].diversity: must be"),
        ("c.yaml", "cases: [{id: a, diversity: {by: sound}, expected: y}]", "cases[0].diversity.by: must be"),
        (
            "c.yaml",
            "cases: [{id: a, diversity: {near: 1}, expected: y}]",
            "diversity.near: unknown key (known",
        ),
        (
            "c.yaml",
            "cases: [{id: a, diversity: {embedder: 5}, expected: y}]",
            "diversity.embedder: must be the name",
        ),
        ("c.yaml", "cases: [{id: a, diversity: {similarity: true}, expected: y}]", "similarity: must be a number betw"),
        (
            "c.yaml",
            "cases: [{id: a, diversity: {similarity: 2}, expected: y}]",
            "similarity: Input should be less",
        ),
        ("c.yaml", "cases: [{id: a, checks: [any: [5]]}]", "checks[0].any[0]: a number where a check is wanted"),
        (
            "c.yaml",
            "cases: [{id: a, checks: [any: [all: [equals]]]}]",
            "checks[0].any[0].all[0]: equals without a value",
        ),
        (
            "c.yaml",
            "defaults: 5\ncases: [{id: a, expected: y}]",
            "c.yaml:1: defaults: must be a mapping",
        ),
        (
            "c.yaml",
            "templates: [t]\ncases: [{id: a, expected: y}]",
            "templates: must be a mapping of names",
        ),
        ("c.yaml", "cases: [{id: a, template: t, expected: y}]", "'t' is not a template (there are: none)"),
        ("c.jsonl", '{"id": "a", "template": "t", "expected": "y"}', "'t' is not a template (there are: none)"),
        ("c.csv", "id,template,expected\na,t,y\n", "c.csv:2: template: 't' is not a template (there are: none)"),
        ("c.yaml", "cases: [{file: rows.txt, id: a}]", "cases[0].id: unknown key (known here: file, template, input"),
        ("c.yml", "cases: 5", "cases: must be a list of at least one case"),
        ("c.csv", "id,id\na,b\n", "c.csv:1: the header names a column twice"),
        ("c.csv", "id,vars.\na,b\n", "c.csv:1: 'vars.' is not a column of cases (known: id, template"),
        ("c.csv", "id,diversity\na,{\n", "c.csv:2: diversity: not JSON"),
        ("c.csv", "id,expected,thresholds.score\na,b,c\n", "c.csv:2: thresholds.score: 'c' where a number"),
        ("c.toml", "", "a cases file ends in .yaml, .yml, .json, .jsonl, .ndjson, .csv"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, name: str, text: str, says: str) -> None:
    """Each with where it is."""
    assert says in refused(tmp_path, text, name)


def test_a_header_that_is_no_text_is_said(tmp_path: Path) -> None:
    """By its line, like any other fault."""
    path = tmp_path / "c.csv"
    path.write_bytes(b"\xffid,expected\na,x\n")
    with pytest.raises(ConfigError, match=r"c\.csv:1: the header cannot be read: "):
        load_cases([path])


def test_a_few_lines_cannot_stand_for_gigabytes(tmp_path: Path) -> None:
    """Aliases are measured before they are written out; what would run code is no YAML that is read."""
    lol = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(8)
    )
    assert "too large" in refused(tmp_path, lol)
    assert "not YAML" in refused(tmp_path, 'cases: !!python/object/apply:os.system ["true"]')


def test_thousands_of_faults_are_listed_briefly(tmp_path: Path) -> None:
    """Twenty, and how many more."""
    said = refused(tmp_path, json.dumps({"cases": [{"id": str(i), "x": 1, "expected": 1} for i in range(60)]}))
    assert said.count("\n") == 21
    assert "and 40 more" in said


def test_days_and_numbers_as_keys_are_texts(tmp_path: Path) -> None:
    """What YAML takes for more than text is what was written, in inputs, variables and checks alike."""
    [case] = loaded(
        tmp_path,
        "cases: [{id: a, vars: {day: 2026-03-02}, input: {1: 'on {{day}}', day: '{{day}}'}, expected: 2026-03-02}]",
    )
    assert case.input == {"1": "on 2026-03-02", "day": "2026-03-02"}
    assert case.params["checks"] == [{"equals": "2026-03-02"}]


def test_an_input_in_a_cell_is_data_where_it_is_json(tmp_path: Path) -> None:
    """Text that only begins like JSON stays text; several tags stand in one cell, or as a list."""
    chat = '"[{""role"": ""user"", ""content"": ""hi""}]"'
    table = f'id,expected,input,tags\na,x,{chat},"t, ,u"\nb,x,[not JSON,"[""v, w""]"\n'
    first, second = loaded(tmp_path, table, "c.csv")
    assert (first.input, first.params["tags"]) == ([{"role": "user", "content": "hi"}], ["t", "u"])
    assert (second.input, second.params["tags"]) == ("[not JSON", ["v, w"])


def test_variables_of_a_table_are_texts(tmp_path: Path) -> None:
    """As they are written: a number of one is no other text."""
    [case] = loaded(tmp_path, "id,vars.n,vars.m,expected\na,007,1e3,{{n}} of {{m}}\n", "c.csv")
    assert case.params["checks"] == [{"equals": "007 of 1e3"}]


def test_cases_of_a_table_lie_over_what_the_entry_says(tmp_path: Path) -> None:
    """Defaults, the entry's template, the entry, the row's own template, the row."""
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n{"id": "b", "template": "own", "tags": ["row"]}\n')
    text = """
defaults: {input: hi, tags: [all], thresholds: {pass-rate: 0.5, pass@2: 0.5}}
templates: {t: {tags: [t], checks: [is-json]}, own: {tags: [own], thresholds: {pass-rate: 0}}}
cases: [{file: rows.jsonl, template: t, tags: [entry], weight: 3}]
"""
    first, second = loaded(tmp_path, text, "c.yml")
    assert (first.params["tags"], second.params["tags"]) == (["all", "t", "entry"], ["all", "t", "entry", "own", "row"])
    assert first.params["weight"] == second.params["weight"] == 3
    assert first.params["checks"] == second.params["checks"] == [{"is-json": True}]
    # A threshold of 0 says that what a layer below demands does not hold here.
    numbers = [[rate["number"] for rate in each.params["thresholds"]["rates"]] for each in (first, second)]
    assert numbers == [["pass-rate", "pass@2"], ["pass@2"]]


def test_files_without_a_case_are_named(tmp_path: Path) -> None:
    """All of them: none can be meant."""
    for name in ("a.jsonl", "b.csv"):
        (tmp_path / name).write_text("id,expected\n" if name.endswith("csv") else "")
    with pytest.raises(ConfigError) as caught:
        load_cases([tmp_path / "a.jsonl", tmp_path / "b.csv"])
    assert str(caught.value) == f"no case in {tmp_path / 'a.jsonl'}, {tmp_path / 'b.csv'}"


def test_a_fault_of_a_layer_names_the_case_that_it_hurts(tmp_path: Path) -> None:
    """One of the case's own stands where the case is."""
    said = refused(tmp_path, "defaults: {checks: [{contains: '{{who}}'}]}\ncases:\n  - {id: a, expected: y}\n")
    assert "c.yaml:1: defaults.checks[0]: {{who}} is not a variable" in said.replace("cases.yaml", "c.yaml")
    assert "(in the case 'a')" in said
    own = refused(tmp_path, "cases:\n  - {id: a, checks: [{contains: '{{who}}'}]}\n")
    assert "(in the case" not in own


def test_what_is_written_out_is_counted_whatever_it_stands_in() -> None:
    """A long text beside a mapping, below a list, as a key: all of it is room taken."""
    long = "x" * (1 << 20)
    values: list[Any] = [[long] * 300 + [{}], [{"a": long}] * 300, {"a": [long] * 300}, [[long]] * 300]
    for value in values:
        with pytest.raises(ConfigError, match="more than 256 MiB"):
            SizeBudget().count(value)
    assert SizeBudget().count([long] * 200 + [{}])[-1] == {}


def test_an_unknown_variable_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    """In their order; a part of a mapping is reached by a point, and only of a mapping."""
    text = "cases: [{id: a, vars: {b: {c: 1}, d: x}, expected: '{{%s}}'}]"
    assert "{{d.c}} is not a variable (known: b, d, id)" in refused(tmp_path, text % "d.c")
    assert "{{b.x}} is not a variable" in refused(tmp_path, text % "b.x")
    [case] = loaded(tmp_path, text % "b.c")
    assert case.params["checks"] == [{"equals": 1}]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("prompt", "input"), ("Question", "input"), ("assert", "checks"), ("ideal", "expected"), ("metadata", "tags")],
)
def test_a_key_of_another_tool_is_answered_with_ours(theirs: str, ours: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"cases:\n- {{id: a, {theirs}: b, checks: [not-refusal]}}\n")
    with pytest.raises(ConfigError, match=rf"c.yaml:2: cases\[0\].{theirs}: unknown key; did you mean {ours}\?"):
        load_cases([tmp_path / "c.yaml"])
