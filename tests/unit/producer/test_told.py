"""What run.json keeps of the command line that began a run, and what commands say of what others said."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalq.producer.cli import cli
from evalq.producer.invocation.invocation import command_line
from tests.integration.harness import evalq

SECRETS = {
    "redis://me:pa@ss@h:6379/0": "redis://me:***@h:6379/0",
    "redis://:hunter2@h/0": "redis://:***@h/0",
    "--broker=rediss://u:p%2F@h": "--broker=rediss://u:***@h",
    "amqp://a:one@h1;amqp://b:two@h2": "amqp://a:***@h2",
    "unix:///run/x.sock?db=1&password=hunter2": "unix:///run/x.sock?db=1&password=***",
    "redis://:a://hunter2@h/0": "redis://:***@h/0",
    "redis://hunter2@h/0": "redis://***@h/0",
    "https://h/v1?api_key=hunter2&x=1": "https://h/v1?api_key=***&x=1",
}


@pytest.mark.parametrize(("word", "kept"), SECRETS.items())
def test_passwords_are_left_out(word: str, kept: str) -> None:
    """Of URLs anywhere in the line, with the user and the host still to be read."""
    assert command_line(["vs", word]) == ["evalq", "vs", kept]


def test_what_is_no_secret_stays_as_it_is() -> None:
    """Paths, tags, mail addresses, URLs without a password."""
    words = ["planagent", "a b.csv", "--tag", "by=a@b.c", "--broker", "redis://h:6379/0", "-o", "x.csv", "--workers=2"]
    assert command_line(words) == ["evalq", *words]


def test_a_run_keeps_its_command_line_and_no_environment(tmp_path: Path) -> None:
    """In run.json, as it was given."""
    (tmp_path / "t.jsonl").write_text('{"actual_output": "ok"}\n')
    words = ["verification", "t.jsonl", "--inline", "--out", "run", "--tag", "by=ci", "--format", "none"]
    done = evalq(*words, cwd=tmp_path, EVALQ_SUITE="nightly-from-environment")
    assert done.returncode == 0, done.stderr
    kept = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept["command"] == ["evalq", *words]
    assert not [word for word in kept["command"] if "environment" in word]


@pytest.mark.parametrize(("words", "what"), [(["status"], "status._fleet"), (["doctor"], "doctor._here")])
def test_what_hosts_say_is_shown_and_not_obeyed(
    words: list[str], what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of workers and reasons of theirs come from other machines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"evalq.producer.commands.{what}", lambda *_: [("sick", "w\x1b]0;mine\x07: broken")])
    monkeypatch.setattr("evalq.producer.commands.doctor._embedded", list)
    message = CliRunner().invoke(cli, words).stdout
    assert "broken" in message
    assert "\x1b" not in message


def test_the_demo_names_commands_that_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a folder with a space in its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evalq.producer.commands.demo._evaluate", lambda _, out, *__: [out / "verification"])
    message = CliRunner().invoke(cli, ["demo", "--out", "my demo", "--only", "verification", "--records", "3"]).stdout
    assert re.search(r"evalq report 'my demo/verification' -o rows\.csv$", message, re.MULTILINE)
    assert re.search(r"evalq view 'my demo'$", message, re.MULTILINE)


def test_the_demo_replaces_no_run_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it makes anything; one that a demo made before is replaced."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("evalq.producer.commands.demo._evaluate", lambda _, out, *__: [out / "verification"])
    (tmp_path / "t.jsonl").write_text('{"actual_output": "ok"}\n')
    demo = ["demo", "--out", "mine", "--only", "verification", "--records", "3"]
    for suite, code in (("nightly", 1), ("demo", 0)):
        words = ["verification", "t.jsonl", "--inline", "--out", "mine/verification", "--suite", suite]
        assert CliRunner().invoke(cli, words).exit_code == 0
        ended = CliRunner().invoke(cli, demo)
        assert (ended.exit_code, (tmp_path / "mine" / "data").exists()) == (code, not code)
        assert bool(code) == ("not a run of the demo" in str(ended.exception))
        shutil.rmtree("mine")
