"""`evalq init` writes files that run as they are, and keeps those that are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalq.evalcore.records.yaml import load
from evalq.evalcore.trust import KEY_VARIABLES
from evalq.workers.targets import load_targets
from tests.integration.harness import evalq

AGENT = 'def answer(call):\n    return \'42 Paris {"country": "France"}\'\n'


@pytest.mark.parametrize(
    "target",
    [
        "openai:m",
        "anthropic:m",
        "gemini:m",
        "ollama:m",
        "http://127.0.0.1:9/ask",
        "python:agent:answer",
        "command:./a b",
    ],
)
def test_each_kind_of_target_is_written_as_a_file_has_it(target: str, tmp_path: Path) -> None:
    done = evalq("init", "--target", target, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(load_targets(tmp_path / "targets.yaml")) == {"agent"}
    assert done.stdout.splitlines()[-1] == "run it: evalq checks cases.yaml --target agent --targets targets.yaml"
    key = {"openai:m": "OPENAI_API_KEY", "anthropic:m": "ANTHROPIC_API_KEY", "gemini:m": "GEMINI_API_KEY"}.get(target)
    assert [name for name in KEY_VARIABLES.values() if name in done.stdout] == ([key] if key else [])


def test_the_command_that_it_prints_runs(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    evalq("init", "work", "--target", "python:agent:answer", cwd=tmp_path)
    (tmp_path / "work/agent.py").write_text(AGENT)
    done = evalq("checks", "cases.yaml", "--target", "agent", "--targets", "targets.yaml", cwd=tmp_path / "work")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 cases answered" in done.stdout


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text("mine")
    (tmp_path / ".gitignore").write_text("build\nevalq-runs/")
    for _ in range(2):
        done = evalq("init", "--gitignore", cwd=tmp_path)
        assert (done.returncode, "kept cases.yaml" in done.stdout) == (0, True), done.stderr
    assert (tmp_path / "cases.yaml").read_text() == "mine"
    assert (tmp_path / ".gitignore").read_text() == "build\nevalq-runs/\nevalq-demo/\n"


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_a_suite_and_a_ci_file_are_read_as_they_are(ci: str, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    done = evalq("init", "--target", "python:agent:answer", "--ci", ci, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "run it: evalq run evalq.yaml --targets targets.yaml"
    path = tmp_path / {"github": ".github/workflows/evalq.yml", "gitlab": ".gitlab-ci.yml"}[ci]
    said = str(load(path.read_text()))
    assert ("./vendor/evalq" if ci == "github" else ".evalq-gate") in said
    assert "evalq.yaml" in said
    assert "targets.yaml" in said
    assert "evalq-runs/" in (tmp_path / ".gitignore").read_text()
    ran = evalq("run", "evalq.yaml", "--targets", "targets.yaml", "--out", "results", cwd=tmp_path)
    assert ran.returncode == 4, ran.stderr  # there is no baseline yet
    assert "evalq baseline set main results/checks" in ran.stdout
    keyed = tmp_path / "keyed"
    assert evalq("init", str(keyed), "--ci", ci, cwd=tmp_path).returncode == 0
    assert "OPENAI_API_KEY" in (keyed / path.relative_to(tmp_path)).read_text()


def test_a_csv_becomes_cases(tmp_path: Path) -> None:
    rows = "\ufeffID, Question ,Expected\na,What is 1+1?,2\na,What is 2+2?,\n,  ,3\n,서울은?,대한민국\n"
    (tmp_path / "q.csv").write_text(rows, encoding="utf-8")
    done = evalq("init", "--from", "q.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "row 3 has no" in done.stdout
    cases = load((tmp_path / "cases.yaml").read_text(encoding="utf-8"))["cases"]
    assert cases == [
        {"id": "a", "input": "What is 1+1?", "checks": [{"icontains": "2"}]},
        {"id": "q2", "input": "What is 2+2?", "checks": ["not-refusal"]},
        {"id": "q4", "input": "서울은?", "checks": [{"icontains": "대한민국"}]},
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b\n1,2\n", "no column of questions: its columns are a, b"),
        (b"", "no column of questions: its columns are none"),
        (b"question\n", "no row has a question"),
        ("질문\n서울은?\n".encode("cp949"), "it reads as Korean in cp949: save the file as 'CSV UTF-8'"),
        (b"question\n" + "1,été là\n".encode("latin-1"), "save the file as UTF-8"),
        ("question\nWhy?\n".encode("utf-16"), "UTF-16: save the file as UTF-8"),
        (b"PAR1\x15\x04\xff", "a Parquet file"),
        (b"PK\x03\x04\xff", "an Excel workbook"),
        (None, "No such file"),
    ],
)
def test_a_csv_without_questions_says_what_it_has(data: bytes | None, said: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "q.csv").write_bytes(data)
    done = evalq("init", "--from", "q.csv", cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "cases.yaml").exists()


def test_a_target_that_is_none_of_the_forms_is_refused(tmp_path: Path) -> None:
    done = evalq("init", "--target", "gpt-4", cwd=tmp_path)
    assert (done.returncode, "openai:MODEL" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("name", ["a: b", "123", "{z}", "x #y", "it's", "한국어", "null"])
def test_a_folder_of_any_name_is_a_suite(name: str, tmp_path: Path) -> None:
    done = evalq("init", name, "--suite", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert load((tmp_path / name / "evalq.yaml").read_text(encoding="utf-8"))["suite"] == name


def test_odd_rows_become_cases_that_are_valid(tmp_path: Path) -> None:
    long = "x" * 200_000
    text = f"id;question;expected\nq3;a;1\nq9;b;2\n;c;3\nq3;d {{{{ x }}}};\n;hello\u2028world;1\n;{long};\n"
    (tmp_path / "q.csv").write_text(text, encoding="utf-8")
    (tmp_path / "agent.py").write_text(AGENT)
    done = evalq("init", "--from", "q.csv", "--target", "python:agent:answer", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ran = evalq("checks", "cases.yaml", "--target", "agent", "--targets", "targets.yaml", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "6 of 6 cases answered" in ran.stdout
