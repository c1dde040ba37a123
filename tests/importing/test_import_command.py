"""`evalq import`: what it writes, what it says, what it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from evalq.evalcore.records import yaml
from evalq.producer.cli import main
from tests.importing.record import HERE, MADE

CONFIG = str(MADE / "promptfoo-providers.yaml")


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".imported.json"}


def test_it_writes_cases_targets_and_notes_and_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every note on the terminal, the same ones in a file, and a command that works on what was written."""
    assert main(["import", "promptfoo", CONFIG, "-d", str(tmp_path / "evals")]) == 0
    output = capsys.readouterr().out
    files = _files(tmp_path / "evals")
    assert set(files) == {"cases.yaml", "targets.yaml", "not-imported.jsonl"}
    notes = [msgspec.json.decode(line) for line in files["not-imported.jsonl"].splitlines()]
    assert all(f"{note['what']}, {note['why']}" in output for note in notes)
    assert all(note["where"].partition(": ")[0] in output for note in notes)
    assert "1 case, 6 targets, 0 recorded outputs" in output
    assert (
        f"evalq checks {tmp_path}/evals/cases.yaml --targets {tmp_path}/evals/targets.yaml --target local-model"
        in output
    )


def test_recorded_outputs_are_checked_by_the_command_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that begins with `check them` is one to copy."""
    assert main(["import", "promptfoo", str(HERE / "promptfoo-forms.json"), "-d", str(tmp_path / "e")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("check them: evalq ")]
    words = line.removeprefix("check them: evalq ").split()
    assert main([*words, "--inline", "--out", str(tmp_path / "run")]) in (0, 1)
    assert (tmp_path / "run" / "report.json").exists()


def test_an_import_replaces_nothing_unless_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is there stays as it is, byte for byte."""
    command = ["import", "promptfoo", CONFIG, "-d", str(tmp_path)]
    assert main(command) == 0
    (tmp_path / "cases.yaml").write_text("mine")
    before = _files(tmp_path)
    assert main(command) == 2
    assert f"{tmp_path}/cases.yaml: already exists" in capsys.readouterr().err
    assert _files(tmp_path) == before
    assert main([*command, "--force"]) == 0
    assert _files(tmp_path)["cases.yaml"] != b"mine"


def test_two_imports_write_the_same_bytes(tmp_path: Path) -> None:
    """Nothing depends on the moment, or on the order of a set."""
    for name in ("a", "b"):
        assert main(["import", "promptfoo", str(HERE / "promptfoo-forms.json"), "-d", str(tmp_path / name)]) == 0
    assert _files(tmp_path / "a") == _files(tmp_path / "b")


def test_hostile_text_is_text_on_the_terminal_and_in_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences, marks that turn writing round, commands for CI, placeholders."""
    hostile = "\x1b[31m\u202e::error::x {{nothing}} \\{{id}} \ud800"
    config = {
        "prompts": ["ask"],
        "providers": [f"odd:{hostile}"],
        "tests": [{"assert": [{"type": "contains", "value": "x"}, {"type": hostile}], "providerOutput": hostile}],
    }
    path = tmp_path / "promptfooconfig.json"
    path.write_text(json.dumps(config))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "e")]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert not any(line.startswith("::") for line in output.splitlines())
    (line,) = (tmp_path / "e" / "outputs.jsonl").read_bytes().splitlines()
    assert msgspec.json.decode(line)["output"] == hostile.replace("\ud800", "\ufffd")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not YAML"), ("[]", "must be a mapping"), ("prompts: [a]\ntests: []\n", "nothing in it has a counterpart")],
)
def test_what_has_nothing_to_import_is_an_error(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written."""
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(content)
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "e")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever tool it is said to be of."""
    from evalq.producer.importing.sources import names

    for source in names():
        for name in (
            ("absent.json", "absent.jsonl") if source in ("bfcl", "deepeval", "openai-evals") else ("absent.json",)
        ):
            assert main(["import", source, str(tmp_path / name), "-d", str(tmp_path / "e")]) == 2
            assert f"{tmp_path}/{name}: cannot be read" in capsys.readouterr().err


def test_a_check_by_name_has_to_be_one_that_takes_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is read."""
    for name in ("resembles", "tool-calls", "json-path-of"):
        command = ["import", "deepeval", str(HERE / "deepeval" / "goldens.json"), "-d", str(tmp_path), "--check", name]
        assert main(command) == 2
        assert f"--check {name}: " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_cases_stand_in_one_file_whatever_was_imported_before(tmp_path: Path) -> None:
    """Many are lines of JSON, few YAML: the other form goes with --force, and is in the way without."""
    path, out = tmp_path / "promptfooconfig.yaml", tmp_path / "evals"
    text = "prompts: ['{{n}}']\ntests: [{vars: {n: [%s]}, assert: [{type: contains, value: x}]}]\n"
    for count, name in ((300, "cases.jsonl"), (3, "cases.yaml")):
        path.write_text(text % ", ".join(f"'{number}'" for number in range(count)))
        assert main(["import", "promptfoo", str(path), "-d", str(out)]) == (0 if count == 300 else 2)
        assert main(["import", "promptfoo", str(path), "-d", str(out), "--force"]) == 0
        assert [each.name for each in out.glob("cases.*")] == [name]


def test_nothing_of_an_import_before_stands_beside_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Targets and recorded outputs of other cases go with --force; what was changed since stays, and is named."""
    out = tmp_path / "evals"
    assert main(["import", "promptfoo", CONFIG, "-d", str(out)]) == 0
    assert "targets.yaml" in _files(out)
    (out / "outputs-mine.jsonl").write_text("mine")
    deepeval = ["import", "deepeval", str(HERE / "deepeval" / "test-run.json"), "-d", str(out)]
    assert main(deepeval) == 2
    assert main([*deepeval, "--force"]) == 0
    assert f"removed {out}/targets.yaml" in capsys.readouterr().out
    assert set(_files(out)) == {"cases.yaml", "outputs.jsonl", "outputs-mine.jsonl", "not-imported.jsonl"}
    (out / "outputs.jsonl").write_text("changed")
    assert main(["import", "promptfoo", CONFIG, "-d", str(out), "--force"]) == 0
    assert f"left {out}/outputs.jsonl" in capsys.readouterr().out
    assert (out / "outputs.jsonl").read_text() == "changed"


def test_what_is_written_there_about_files_elsewhere_is_not_believed(tmp_path: Path) -> None:
    """The list of the import before names files of imports, in its own folder."""
    digest = hashlib.sha256(b"keep").hexdigest()
    out = tmp_path / "evals"
    out.mkdir()
    for name in ("../keep", "keep"):
        (out / name).write_text("keep")
    (out / ".imported.json").write_text(json.dumps({"../keep": digest, "keep": digest}))
    assert main(["import", "promptfoo", CONFIG, "-d", str(out), "--force"]) == 0
    assert (out / "keep").exists()
    assert (tmp_path / "keep").exists()


def test_where_nothing_is_written_no_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a file without anything that has a counterpart the first kinds are printed, and how many more there are."""
    tests = [{"vars": {"q": str(n)}, "assert": [{"type": f"odd-{n}", "value": "1"}]} for n in range(60)]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"prompts": ["{{q}}"], "tests": tests}))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "evals")]) == 2
    output = capsys.readouterr()
    assert "nothing in it has a counterpart" in output.err
    assert "more" in output.out.splitlines()[-1]
    assert "not-imported.jsonl" not in output.out
    assert not (tmp_path / "evals").exists()


def test_cases_without_a_check_are_kept_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a check that an empty answer fails, and a note that says so; also those whose checks weigh nothing."""
    tests = [
        {"vars": {"q": "only looked at"}},
        {"vars": {"q": "a program"}, "assert": [{"type": "python", "value": "True"}]},
        {"vars": {"q": "weightless"}, "assert": [{"type": "contains", "value": "x", "weight": 0}]},
        {"vars": {"q": "checked"}, "assert": [{"type": "contains", "value": "x"}]},
    ]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"prompts": ["{{q}}"], "providers": ["openai:chat:m"], "tests": tests}))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "evals")]) == 0
    output = capsys.readouterr().out
    assert "1 case," in output
    assert "--keep-unchecked" in output
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "evals"), "--keep-unchecked", "--force"]) == 0
    output = capsys.readouterr().out
    assert "4 cases" in output
    assert "differs: 3 x a case, it brings no check that decides" in output
    outputs = tmp_path / "outputs.jsonl"
    cases = yaml.load((tmp_path / "evals" / "cases.yaml").read_text())["cases"]
    outputs.write_text("".join(json.dumps({"case": case["id"], "output": ""}) + "\n" for case in cases))
    command = ["checks", str(tmp_path / "evals" / "cases.yaml"), "--outputs", str(outputs), "--inline"]
    assert main([*command, "--out", str(tmp_path / "run")]) in (0, 1)
    assert "| answered | 0.0 % (0.0 to 70.8) | 0 | 3 | 0 |" in (tmp_path / "run" / "report.md").read_text()


def test_notes_of_one_kind_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With their count and their first places; the file has every one of them."""
    tests = [
        {
            "vars": {"q": f"question {n}"},
            "assert": [
                *([{"type": "llm-rubric", "value": f"polite {n}"}] if n % 2 else []),
                {"type": "ruby", "value": f"output.length > {n}"},
            ],
        }
        for n in range(40)
    ]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"prompts": ["{{q}}"], "tests": tests}))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "evals")]) == 0
    output = capsys.readouterr().out.splitlines()
    listed = [line for line in output if " x " in line]
    assert [line.partition(", ")[0] for line in listed] == [
        "left out: 40 x ruby",
        "left out: 20 x a case",
        "differs: 20 x llm-rubric",
    ]
    assert all("config.json" in line for line in listed)
    lines = (tmp_path / "evals" / "not-imported.jsonl").read_text().splitlines()
    assert len(lines) == 80
    assert len({json.loads(line)["where"] for line in lines}) == 80


def test_without_a_target_it_says_how_to_name_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A provider that is a program or a browser has no counterpart; the cases are of use all the same."""
    (tmp_path / "tests.csv").write_text("q,__expected\nHello,llm-rubric: is polite\n")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"prompts": ["{{q}}"], "providers": ["file://own.py"], "tests": "file://tests.csv"}))
    assert main(["import", "promptfoo", str(path), "-d", str(tmp_path / "evals")]) == 0
    output = capsys.readouterr().out
    assert f"sweep: evalq checks {tmp_path / 'evals/cases.yaml'} --target TARGET --repeat 5" in output
    assert "python:MODULE:FUNCTION" in output
    (case,) = yaml.load((tmp_path / "evals/cases.yaml").read_text())["cases"]
    assert case["checks"] == [{"rubric": "is polite"}]


@pytest.mark.parametrize(
    ("file", "tool"),
    [
        (MADE / "promptfoo-providers.yaml", "promptfoo"),
        (MADE / "openai_evals.json", "openai-evals"),
        (HERE / "inspect-choices.eval", "inspect"),
        (HERE / "deepeval" / "test-run.json", "deepeval"),
        *((path, "lm-eval") for path in sorted((HERE / "lm-eval").glob("results_*.json"))),
    ],
)
def test_a_file_says_whose_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: Path, tool: str) -> None:
    """Without a tool's name, the files are those that the named tool's import writes."""
    assert main(["import", str(file), "-d", str(tmp_path / "guessed")]) == 0
    assert f"read as a file of {tool}: evalq import {tool} {file}" in capsys.readouterr().out
    assert main(["import", tool, str(file), "-d", str(tmp_path / "named")]) == 0
    assert _files(tmp_path / "guessed") == _files(tmp_path / "named")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "name a file: evalq import TOOL FILE, with TOOL as one of atif, bfcl, claude-code, codex, deepeval"),
        (["promptfoo"], "name the file of promptfoo, too: evalq import promptfoo FILE"),
        (["promptfo", "cases.yaml"], "did you mean promptfoo?"),
        (
            ["cases.yaml"],
            "cases.yaml: no case is found in it as a file of atif, bfcl, claude-code, codex, deepeval",
        ),
        (["cases.yaml", "promptfoo"], "cases.yaml: evalq imports from no tool of this name"),
        (["nothing.yaml"], "nothing.yaml: there is no such file"),
        (["."], ".: that is a folder"),
        (["promptfoo", "a", "b"], "name one file only"),
    ],
)
def test_what_names_no_file_of_a_tool_lists_the_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    """An error that says what to write; nothing is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cases.yaml").write_text("cases: [{id: a, input: x, checks: [{contains: y}]}]")
    assert main(["import", *words]) == 2
    assert says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cases.yaml"]
