"""Every form of a configuration, and the results that promptfoo wrote of the same one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError
from evalq.producer.importing import sources
from evalq.producer.importing.imported import Imported, ImportRequest
from tests.importing.judged import judged
from tests.importing.record import HERE, MADE


def _imported(folder: Path, text: str, asked: ImportRequest | None = None) -> Imported:
    path = folder / "promptfooconfig.yaml"
    path.write_text(text)
    return sources.read("promptfoo", path, asked or ImportRequest())


def test_the_configuration_gives_the_prompts_that_promptfoo_asked(tmp_path: Path) -> None:
    """Of texts, files and chats, variables of lists and files, spreadsheets, scenarios, defaults, references."""
    imported = sources.read("promptfoo", MADE / "promptfoo" / "promptfooconfig.yaml", ImportRequest())
    results = json.loads((HERE / "promptfoo-forms.json").read_text())["results"]["results"]
    asked = {row["prompt"]["raw"] for row in results}
    made = {each if isinstance(each, str) else json.dumps(each) for each in (case["input"] for case in imported.cases)}
    assert made == {prompt if not prompt.startswith("[") else json.dumps(json.loads(prompt)) for prompt in asked}


def test_configuration_and_results_make_the_same_cases(tmp_path: Path) -> None:
    """The same inputs with the same checks, whichever of the two is imported."""
    of_config = sources.read("promptfoo", MADE / "promptfoo" / "promptfooconfig.yaml", ImportRequest())
    of_results, judgements = judged("promptfoo", HERE / "promptfoo-forms.json", tmp_path)

    def known(imported: Imported) -> set[str]:
        return {json.dumps([case["input"], case["checks"], case.get("thresholds")]) for case in imported.cases}

    assert known(of_results) == known(of_config)
    # Each was asked twice.
    repeats = {judgement.repeat for judgement in judgements}
    assert repeats == {0, 1}
    assert len(judgements) == 2 * len(of_results.cases)


def test_recorded_results_have_the_verdicts_that_promptfoo_gave(tmp_path: Path) -> None:
    """Of every row whose checks all have a counterpart; what failed there is an error here."""
    imported, judgements = judged("promptfoo", HERE / "promptfoo-forms.json", tmp_path)
    rows = json.loads((HERE / "promptfoo-forms.json").read_text())["results"]["results"]
    lost = {
        note.where.partition(".testCase")[0].rpartition("[")[2] for note in imported.notes if note.kind != "differs"
    }
    compared = 0
    for index, (row, judgement) in enumerate(zip(rows, judgements, strict=True)):
        if row["failureReason"] == 2:
            assert judgement.status == "error"
        elif f"{index}]" not in lost and len(row["gradingResult"]["componentResults"]) == len(judgement.checks):
            assert (judgement.status == "passed") == row["success"], judgement.reason
            compared += 1
    assert compared >= 20


def test_everything_without_a_counterpart_is_listed_with_its_place() -> None:
    """File, line, key path and the reason."""
    path = MADE / "promptfoo" / "promptfooconfig.yaml"
    imported = sources.read("promptfoo", path, ImportRequest())
    lines = path.read_text().splitlines()
    listed = {(note.kind, note.what): note.where for note in imported.notes}
    for kind, what, text in (
        ("differs", "llm-rubric", "llm-rubric"),
        ("none", "rouge-n", "rouge-n"),
        ("none", "evaluateOptions", "evaluateOptions"),
        ("differs", "assert-set", "assert-set"),
    ):
        where = listed[kind, what]  # type: ignore[index]  # kinds of notes are literals
        number = int(where.removeprefix(f"{path}:").partition(":")[0])
        assert text in lines[number - 1], where


def test_providers_become_targets_and_no_secret_is_copied(tmp_path: Path) -> None:
    """Chat completions and plain endpoints; programs and other services are listed."""
    imported = sources.read("promptfoo", MADE / "promptfoo-providers.yaml", ImportRequest())
    assert imported.targets["local-model"] == {
        "kind": "openai",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "small",
        "api_key_env": "LOCAL_KEY",
        "options": {"temperature": 0, "max_tokens": 20},
        "output": "text",
    }
    assert imported.targets["an-endpoint"] == {
        "kind": "http",
        "url": "https://example.org/ask",
        "body": {"question": "{prompt}", "top": 3},
        "answer": "choices[0].text",
        "api_key_env": "ASK_KEY",
        "output": "text",
    }
    assert set(imported.targets) == {
        "local-model",
        "an-endpoint",
        "openai-gpt-4o",
        "anthropic-messages-claude",
        "ollama-chat-llama3",
        "openai-chat-secret",
    }
    assert "never-copied" not in json.dumps([imported.targets, [note.why for note in imported.notes]])
    noted = {note.what for note in imported.notes}
    assert {"echo", "exec:./answer.sh", "openai:chat:secret: apiKey"} <= noted
    assert "an endpoint: header X-Team" in noted or "https://example.org/ask: header X-Team" in noted
    from evalq.producer.importing.imported import write
    from evalq.workers.targets import load_targets

    write(imported, tmp_path, force=False)
    assert set(load_targets(tmp_path / "targets.yaml")) == set(imported.targets)


def test_what_chooses_prompts_is_listed_where_it_has_no_effect(tmp_path: Path) -> None:
    """Prompts of a provider, what else stands beside its configuration, and a test that asks for an unknown prompt."""
    text = """
prompts: [{id: a.txt, label: long}, {id: b.txt, label: short}]
providers: [{id: echo, prompts: [short], delay: 5}, {"openai:chat:small": {transform: output.trim()}}]
tests:
  - {description: one, vars: {q: x}, prompts: [short], assert: [{type: contains, value: x}]}
  - {description: two, vars: {q: x}, prompts: [medium]}
"""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("{{q}}")
    imported = _imported(tmp_path, text)
    noted = {note.what for note in imported.notes}
    assert {"echo: prompts", "echo: delay", "openai:chat:small: transform", "prompts"} <= noted
    assert "two" in {note.text for note in imported.notes}
    assert [case["id"] for case in imported.cases] == ["one"]
    assert imported.cases[0]["tags"] == ["prompt:short"]


@pytest.mark.parametrize("name", ["../outside.txt", "ABSOLUTE", "link.txt", "sub/../../outside.txt"])
def test_files_outside_the_folder_are_not_read_unless_asked(name: str, tmp_path: Path) -> None:
    """Not by a path, not by a link; with --anywhere they are."""
    (tmp_path / "outside.txt").write_text("the secret")
    folder = tmp_path / "config"
    (folder / "sub").mkdir(parents=True)
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    path = str(tmp_path / "outside.txt") if name == "ABSOLUTE" else name
    text = f"prompts: ['file://{path}']\ntests: [{{assert: [{{type: contains, value: x}}]}}]\n"
    kept = _imported(folder, text)
    assert not kept.cases
    assert "outside" in kept.notes[0].why
    assert _imported(folder, text, ImportRequest(anywhere=True)).cases[0]["input"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ text | upper }}", "more than {{name}}"),
        ("{% if text %}x{% endif %}", "more than {{name}}"),
        ("{{ env.HOME }}", "reads the environment"),
        ("file://prompt.py", "a program"),
        ("exec:./prompt.sh", "a program"),
        ("langfuse://prompt", "another service"),
    ],
)
def test_a_prompt_that_is_a_program_is_listed_and_never_run(text: str, why: str, tmp_path: Path) -> None:
    """Nunjucks beyond names, files of code, and prompts that others keep."""
    (tmp_path / "prompt.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    imported = _imported(
        tmp_path, f"prompts: ['{text}']\ntests: [{{vars: {{text: a}}, assert: [{{type: contains, value: x}}]}}]\n"
    )
    assert not imported.cases
    assert any(why in note.why for note in imported.notes), imported.notes
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompts: [a\n", "not YAML"),
        ("- a\n", "must be a mapping"),
        ("a: &a [*a]\n", "alias"),
        ("x: &x {$ref: '#/x'}\nprompts: ['{{text}}']\ntests: [{$ref: '#/tests/0'}]\n", "round"),
        (
            "prompts: [a]\ntests: [{vars: {" + ", ".join(f"v{n}: [a, b, c, d, e, f, g, h]" for n in range(9)) + "}}]\n",
            "multiply",
        ),
    ],
)
def test_what_cannot_be_read_says_so_and_ends(text: str, message: str, tmp_path: Path) -> None:
    """Broken YAML, references in a circle, variables that multiply without end."""
    said = ""
    try:
        said = " ".join(note.why for note in _imported(tmp_path, text).notes)
    except ConfigError as error:
        said = str(error)
    assert message in said


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("t.csv", 'q,__expected\na,contains:x\nb,"contains-any:""x"" y"\nc,contains:z\n', ":3"),
        (
            "t.jsonl",
            f"{json.dumps({'vars': {'q': 'a'}, 'assert': [{'type': 'equals', 'value': 'x'}]})}\n[1]\n" * 2,
            ":2",
        ),
        ("t.yaml", "- {vars: {q: a}, assert: [{type: equals, value: x}]}\n- 1\n" * 2, ":2"),
    ],
)
def test_a_test_of_a_file_that_is_none_is_noted_and_the_others_are_read(
    name: str, text: str, line: str, tmp_path: Path
) -> None:
    """With its line; those that stand behind it are none the worse."""
    (tmp_path / name).write_text(text)
    imported = _imported(tmp_path, f'prompts: ["{{{{q}}}}"]\ntests: {name}\n')
    assert len(imported.cases) == 2
    assert f"{tmp_path / name}{line}" in [note.where.partition(": ")[0] for note in imported.notes]
