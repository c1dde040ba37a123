"""Every command of evalq that stands in deploy/ is one that this evalq takes, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from evalq.producer.cli import cli
from tests.deploy.programs import TOP

DEPLOY = TOP / "deploy"


def _commands() -> Iterator[tuple[str, list[str]]]:
    """(where it stands, its words after `evalq`)."""
    for name, service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].items():
        if service.get("image", "").startswith("${EVALQ_IMAGE") and name != "producer":
            yield f"compose {name}", service["command"]
    for file in sorted((DEPLOY / "kubernetes").glob("*/*.yaml")):
        for found in re.findall(r"image: evalq\n +args: (\[.*\])", file.read_text()):
            yield file.stem, yaml.safe_load(found)
        for found in re.findall(r"command: (\[evalq, .*\])", file.read_text()):
            yield f"{file.stem} probe", yaml.safe_load(found)[1:]
    for file in sorted((DEPLOY / "systemd").glob("*.service")):
        for found in re.findall(r"^ExecStart=/opt/evalq/bin/evalq (.*)$", file.read_text(), re.MULTILINE):
            yield file.stem, shlex.split(found)
    page = (TOP / "docs" / "how-to" / "deploy.md").read_text()
    for found in re.findall(r"^\d.*/evalq/bin/evalq (.*)$", page, re.MULTILINE):
        yield "cron", shlex.split(found)


COMMANDS = list(_commands())


def parse(words: list[str]) -> None:
    """Raise UsageError for what evalq would not take."""
    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    if command is None:
        raise click.UsageError(f"no command {words[0]}")
    command.make_context(words[0], words[1:])


def test_all_roles_are_there() -> None:
    """Workers, calls, exporter and suites, in each of the three ways to deploy, and a cron line."""
    assert len(COMMANDS) >= 13
    for role in ("--concurrency 2", "--calls 200", "exporter", "run"):
        assert sum(role in " ".join(words) for _, words in COMMANDS) >= 3


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_evalq_takes_the_command(where: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options and values are known; a file that it names is the user's."""
    monkeypatch.chdir(tmp_path)
    for word in [word for word in words if word.endswith(".yaml") and not word.startswith("/")]:
        Path(word).parent.mkdir(parents=True, exist_ok=True)
        Path(word).touch()
    parse(words)


@pytest.mark.parametrize(
    "words", [["worker", "--concurrent", "2"], ["worker", "--concurrency", "two"], ["exports"], ["doctor", "--workers"]]
)
def test_a_wrong_command_is_noticed(words: list[str]) -> None:
    """An unknown option, value or command is not taken."""
    with pytest.raises(click.UsageError):
        parse(words)
