"""Every code block of every page is read as its reader would use it: commands, files, JSON, Python, shell."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pytest

from docs import check
from evalq.evalcore.compare.policy import Policy
from evalq.evalcore.contract.params import validate
from evalq.evalcore.evaluators.checks.case_files import Location, RecordedCase
from evalq.evalcore.evaluators.checks.cases import load_cases
from evalq.evalcore.records.yaml import read_document
from evalq.producer.cli import cli
from evalq.producer.suites.run_model import SuiteKeys, run_model
from evalq.workers.targets import load_targets

TOP = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HEREDOC = re.compile(r"^cat > \S+ <<'END'\n.*?^END$", re.DOTALL | re.MULTILINE)
_OTHERS = (
    "on",
    "name",
    "image",
    "services",
    "broker",
    "include",
    "permissions",
    "prompts",
    "steps",
    "uses",
    "receivers",
)
"""First keys of files that are another program's, or of settings."""
OWN = ("lengths",)
"""Commands of a package that a page builds."""
OWN_KINDS = ("shop",)
"""Kinds of targets of such a package: a test of that page has them."""

_ROUTES = ("refund", "order")

PAGES = [page for page in check.PAGES if _BLOCK.search(page.read_text(encoding="utf-8"))]


def _blocks(page: Path) -> Iterator[tuple[str, str]]:
    yield from _BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_the_blocks_of_a_page_are_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key, a missing argument or a half sentence of JSON fails here, and not at a reader's."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: value)  # files are the reader's
    monkeypatch.chdir(tmp_path)
    for kind, text in _blocks(page):
        if kind == "sh":
            assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0, text
            for command in _commands(text):
                _parsed(command)
        elif kind == "python":
            ast.parse(textwrap.dedent(text) if not text.startswith("from evalq") else _without_members(text))
        elif kind == "json":
            for line in _values(text):
                json.loads(line)
        elif kind == "toml":
            tomllib.loads(text)
        elif kind == "ini":
            ConfigParser().read_string(text)
        elif kind == "yaml":
            _document(read_document(text, page.name), tmp_path / "block.yaml", text)


def _without_members(text: str) -> str:
    """A block whose second half goes into a class."""
    imports, _, members = text.partition("\n\n")
    return f"{imports}\n\n{textwrap.dedent(members)}"


def _values(text: str) -> list[str]:
    """A line each, or one value over several lines."""
    return (
        text.splitlines() if all(line.startswith("{") and line.endswith("}") for line in text.splitlines()) else [text]
    )


def _commands(text: str) -> Iterator[list[str]]:
    for line in _HEREDOC.sub("", text).replace("\\\n", " ").splitlines():
        for part in re.split(r"\s(?:&&|\||;)\s", line.partition(" #")[0]):
            words = shlex.split(re.sub(r"\s[12]?>\s*\S+", "", part), comments=True)
            at = next((n for n, word in enumerate(words) if word == "evalq"), None)
            if at is not None:
                yield words[at + 1 :]


def _parsed(words: list[str]) -> None:
    """The command takes these words; nothing is called."""
    name, *rest = words
    if name in OWN or name.startswith("-") or name.isupper():
        return
    command = cli.get_command(click.Context(cli), name)
    assert command is not None, words
    if isinstance(command, click.Group):
        command = command.commands[rest.pop(0)]
    if {"--help", "--help-all"} & {*rest}:
        return
    command.make_context(name, list(rest), resilient_parsing=False)


def _document(found: Any, path: Path, text: str) -> None:
    """A file of evalq's is valid, as its command would read it."""
    if isinstance(found, list):
        return
    assert isinstance(found, Mapping)
    path.write_text(text)
    if "runs" in found:
        suite = {key: value for key, value in found.items() if key != "runs"}
        validate(SuiteKeys, {**suite, "runs": [{"evaluator": "checks"}]}, "suite")
        for run in found["runs"]:
            kept = {key: value for key, value in run.items() if key != "matrix"}
            validate(run_model(run["evaluator"]), kept, "run")
        found = found.get("policy", {})
        if found:
            validate(Policy, found, "policy")
    elif "targets" in found:
        for name in ("plain", "strict"):
            (path.parent / "prompts").mkdir(exist_ok=True)
            (path.parent / "prompts" / f"{name}.md").write_text("Be short.")
        if not any(entry.get("kind") in OWN_KINDS for entry in found["targets"].values()):
            load_targets(path)
    elif any("where" in case for case in found.get("cases", ())):
        # Its entries select among traces by their attributes.
        traces = [RecordedCase({"input": "x"}, Location("t", (), 1), {"route": route}) for route in _ROUTES]
        load_cases([path], dict(zip(_ROUTES, traces, strict=True)))
    elif "cases" in found:
        load_cases([path])
    elif "checks" in found:
        path.write_text(json.dumps({"cases": [{"id": "a", "expected": "x", **found}]}))
        load_cases([path])
    elif {"gates", "quarantine", "max_missing"} & {*found}:
        validate(Policy, {"gates": [{"metric": "checks.pass_rate", "min": 0}], **found}, "policy")
    else:
        assert next(iter(found)) in _OTHERS, f"no test reads this block: {text}"
