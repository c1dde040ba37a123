"""Targets that the command line names without a file: what they mean, and that nobody else can name one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalq.evalcore.errors import UsageError
from evalq.workers.targets import load_targets
from evalq.workers.targets.spec import FORMS, base_url, is_spec, join
from tests.agents.server import running_agent
from tests.integration.harness import evalq, info

URL_VARIABLES = {
    "openai": "OPENAI_BASE_URL",
    "anthropic": "ANTHROPIC_BASE_URL",
    "gemini": "GOOGLE_GEMINI_BASE_URL",
    "ollama": "OLLAMA_HOST",
}
CASES = {"cases": [{"id": "a", "input": "hello", "checks": [{"contains": "hello"}]}]}


@pytest.mark.parametrize(
    ("spec", "name", "kind", "address"),
    [
        ("openai:gpt-4o-mini", "gpt-4o-mini", "openai", "https://api.openai.com/v1 gpt-4o-mini"),
        ("openai:ft:gpt:org::id", "ft-gpt-org-id", "openai", "https://api.openai.com/v1 ft:gpt:org::id"),
        ("anthropic:claude-x-1", "claude-x-1", "anthropic", "https://api.anthropic.com claude-x-1"),
        ("gemini:gemini-x", "gemini-x", "gemini", "https://generativelanguage.googleapis.com gemini-x"),
        ("ollama:llama3.2:1b", "llama3.2-1b", "openai", "http://127.0.0.1:11434/v1 llama3.2:1b"),
        ("http://[::1]:9000/v1/ask", "1-v1-ask", "http", "http://[::1]:9000/v1/ask"),
        ("https://agents.example/ask?key=s3cret", "agents.example-ask", "http", "https://agents.example/ask"),
        ("python:agent:answer", "agent-answer", "python", "agent:answer"),
        ("command:./agent", "agent", "command", "./agent"),
        ("command:python3 'my agent.py'", "python3-my", "command", "python3"),
    ],
)
def test_each_form_is_a_target(spec: str, name: str, kind: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in URL_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    assert is_spec(spec)
    targets, names = join([spec])
    assert names == {spec: name}
    target = load_targets(targets)[name].target
    assert (target.kind, target.address()) == (kind, address)  # type: ignore[attr-defined]  # every kind has one


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        ("openai", " ", "https://api.openai.com/v1"),
        ("openai", "http://127.0.0.1:9/v1/", "http://127.0.0.1:9/v1"),
        ("anthropic", "", "https://api.anthropic.com"),
        ("anthropic", "http://127.0.0.1:9/", "http://127.0.0.1:9"),
        ("gemini", "http://127.0.0.1:9", "http://127.0.0.1:9"),
        ("ollama", "", "http://127.0.0.1:11434/v1"),
        ("ollama", "0.0.0.0", "http://127.0.0.1:11434/v1"),  # noqa: S104 - what its server listens on
        ("ollama", ":4000", "http://127.0.0.1:4000/v1"),
        ("ollama", "[::]:4000", "http://[::1]:4000/v1"),
        ("ollama", "gpu.lan", "http://gpu.lan:11434/v1"),
        ("ollama", "https://gpu.lan/models/", "https://gpu.lan:443/models/v1"),
    ],
)
def test_the_environment_says_where_a_provider_is(
    kind: str, given: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLES[kind], given)
    assert base_url(kind) == found


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("openai", "127.0.0.1:9"),
        ("openai", "ftp://host/v1"),
        ("anthropic", "host"),
        ("gemini", "http://host?key=x"),
        ("openai", "http://"),
        ("openai", "http://host:port/v1"),
        ("openai", "http://host:0/v1"),
        ("openai", "http://host/v1?key=x"),
        ("openai", "http://host/ v1"),
        ("ollama", "host:0"),
        ("ollama", "host?x"),
        ("ollama", "host:port"),
        ("ollama", "ftp://host"),
        ("ollama", "http://[::1"),
    ],
)
def test_an_address_of_the_environment_that_is_none_is_named(
    kind: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLES[kind], given)
    with pytest.raises(UsageError, match=URL_VARIABLES[kind]):
        base_url(kind)


@pytest.mark.parametrize("kind", URL_VARIABLES)
def test_an_address_that_is_refused_does_not_show_its_password(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLES[kind], "ftp://me:s3cret@host/v1")
    with pytest.raises(UsageError) as refused:
        base_url(kind)
    assert "s3cret" not in str(refused.value)
    assert "//...@host/v1" in str(refused.value)


@pytest.mark.parametrize(
    "text", ["agent", "in:folder", "targets.yaml", "./openai", "grader[model=x]", "c:/targets.yaml", "", "openai"]
)
def test_other_texts_are_names_of_a_file(text: str) -> None:
    assert not is_spec(text)


@pytest.mark.parametrize(
    "spec",
    [
        "openai:",
        "ollama:  ",
        "python:agent",
        "python::answer",
        "command:",
        "command:'half",
        "http://[::1/x",
        "http://127.0.0.1/x\nopenai:y",
    ],
)
def test_an_incomplete_one_says_what_is_missing(spec: str) -> None:
    with pytest.raises(UsageError, match=r"--target "):
        join([spec])


def test_two_of_one_name_are_distinguished() -> None:
    _, names = join(["openai:m", "ollama:m", "openai:m"])
    assert names == {"openai:m": "m", "ollama:m": "m-2"}


def test_the_forms_are_those_of_the_help(tmp_path: Path) -> None:
    shown = evalq("checks", "--help", cwd=tmp_path).stdout
    for form in FORMS:
        assert form.partition(":")[0] in shown


def write(folder: Path, **more: Any) -> None:
    """One case, and what ``more`` adds to the file."""
    (folder / "cases.json").write_text(json.dumps(CASES | more))


def test_a_function_and_a_program_are_called_and_a_resume_knows_them_elsewhere(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "agent.py").write_text("def answer(call):\n    return 'hello, ' + call['prompt']\n")
    (tmp_path / "agent").write_text("#!/bin/sh\nif [ -e ready ]; then echo hello; else exit 3; fi\n")
    (tmp_path / "agent").chmod(0o755)
    done = evalq("checks", "cases.json", "--target", "python:agent:answer", "--out", "function", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    program = (
        "checks",
        str(tmp_path / "cases.json"),
        "--target",
        "command:./agent",
        "--out",
        "program",
        "--max-calls",
        "1",
    )
    assert evalq(*program, cwd=tmp_path).returncode == 3
    (tmp_path / "ready").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/agent").write_text("#!/bin/sh\necho another program\n")
    (tmp_path / "elsewhere/agent").chmod(0o755)
    done = evalq("retry", "../program", "--errors", "--max-calls", "9", cwd=tmp_path / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "program/outputs.jsonl").read_text())["output"].strip() == "hello"


def test_a_service_is_called_and_its_reply_is_shown_where_it_is_of_another_form(tmp_path: Path) -> None:
    write(tmp_path)
    with running_agent() as (agent, url):
        agent.answer = lambda prompt: prompt
        done = evalq("checks", "cases.json", "--target", f"{url}/chat/completions", "--out", "run", cwd=tmp_path)
        assert done.returncode == 5, done.stderr
        assert "output" in done.stdout + done.stderr
        assert '\\"choices\\"' in (tmp_path / "run/outputs.jsonl").read_text()


@pytest.mark.parametrize("word", ["--targets", "--broker"])
def test_it_goes_with_no_file_and_no_fleet(word: str, tmp_path: Path) -> None:
    write(tmp_path)
    value = "targets.yaml" if word == "--targets" else "redis://127.0.0.1:1/0"
    done = evalq("checks", "cases.json", "--target", "openai:m", word, value, cwd=tmp_path)
    assert (done.returncode, word in done.stderr) == (2, True)


def test_a_suite_or_a_cases_file_cannot_name_one(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("#!/bin/sh\ntouch called\necho hello\n")
    (tmp_path / "agent").chmod(0o755)
    write(tmp_path)
    suite = {"runs": [{"checks": ["cases.json"], "target": "command:./agent"}]}
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    assert evalq("run", "suite.json", cwd=tmp_path).returncode != 0
    write(tmp_path, defaults={"judge": "command:./agent"})
    (tmp_path / "out.jsonl").write_text(json.dumps({"case": "a", "output": "hello"}))
    judged = {"cases": [{"id": "a", "input": "hello", "judge": "command:./agent", "checks": [{"rubric": "polite"}]}]}
    (tmp_path / "cases.json").write_text(json.dumps(judged))
    done = evalq("checks", "cases.json", "--outputs", "out.jsonl", "--out", "run", cwd=tmp_path)
    assert done.returncode != 0
    assert not (tmp_path / "called").exists()
    assert not (tmp_path / "run").exists() or "calls" not in info(tmp_path / "run")


def test_what_is_secret_in_an_address_is_not_printed(tmp_path: Path) -> None:
    write(tmp_path)
    with running_agent() as (agent, url):
        agent.dead = lambda: agent.calls.total() > 0
        spec = url.replace("http://", "http://user:s3cretpw@") + "/x?api_key=s3cretkey"
        retries = ("--max-calls", "1")
        done = evalq("checks", "cases.json", "--target", spec, *retries, "--out", "run", cwd=tmp_path)
    assert done.returncode != 0
    assert "s3cret" not in done.stdout + done.stderr
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"s3cret" not in path.read_bytes()
