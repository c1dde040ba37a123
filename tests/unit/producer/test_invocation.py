"""What a command line says, typed: nothing of it is lost, and nothing has to be asked for twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.evalcore.errors import ConfigError, UsageError
from evalq.producer.cli import cli, main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.invocation import options
from evalq.producer.invocation.invocation import (
    Invocation,
    LiveArguments,
    OutputArguments,
    PlaceArguments,
    StartArguments,
    command,
    echo_markdown,
)
from evalq.producer.sweep.options import SweepOptions

COMMON = [
    *options.place_options(),
    *options.calling_options(),
    *options.output_options(),
    *options.run_options(),
    *options.follow_options(),
]
SHARED = [*(option for name in plugins.names() for option in options.live_options(plugins.get(name))), *COMMON]


@pytest.mark.parametrize("option", SHARED, ids=lambda option: str(option.name))
def test_every_shared_option_has_its_place(option: click.Option) -> None:
    """By its name, in one group of the invocation."""
    groups = Invocation.__struct_fields__
    assert sum(str(option.name) in getattr(Invocation(), group).__struct_fields__ for group in groups[:-1]) == 1
    assert Invocation.holds(str(option.name))


def test_an_option_that_nobody_takes_is_refused_when_the_command_is_made() -> None:
    """Not when a user gives it."""

    def call(invocation: Invocation) -> None:
        pass

    with pytest.raises(TypeError, match="nor Invocation takes speed"):
        command(call, click.Option(["--speed"]), name="x", text="X.")


def test_a_parameter_that_a_command_names_itself_goes_there_and_nowhere_else() -> None:
    """Others are in the invocation, an evaluator's own under their names."""
    seen: list[Any] = []

    def call(invocation: Invocation, limit: int) -> int:
        seen.extend((invocation, limit))
        return 4

    made = command(
        call,
        *(option for option in options.run_options() if option.name in ("limit", "tags", "out")),
        click.Option(["--rules", "own_rules"]),
        name="x",
        text="X.",
    )
    line = ["--limit", "3", "--tag", "a=b", "--out", "here", "--rules", "r"]
    assert made.main(line, standalone_mode=False) == 4
    assert seen == [Invocation(start=StartArguments(tags=("a=b",), out=Path("here")), own={"rules": "r"}), 3]


def test_no_option_of_an_evaluator_hides_one_that_all_commands_have() -> None:
    """Two meanings of one flag: a note of CI's chose cases. But the seed of cooperation calls metrics.json --out."""
    hidden: dict[str, set[str]] = {}
    for name in plugins.built_in():
        evaluator = plugins.get(name)
        shared = {flag for option in (*COMMON, *options.live_options(evaluator)) for flag in option.opts}
        if both := shared.intersection(flag for option in evaluator.command.options for flag in option.flags):
            hidden[name] = both
    assert hidden == {"cooperation": {"--out"}}


def test_cases_are_chosen_and_the_run_has_its_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By --case-tag and by --tag, in one command."""
    monkeypatch.chdir(tmp_path)
    cases = [{"id": name, "expected": "x", "tags": [f"of-{name}"]} for name in "ab"]
    Path("cases.yaml").write_text(json.dumps({"cases": cases}))
    Path("o.jsonl").write_text("".join(json.dumps({"case": c["id"], "repeat": 0, "output": "x"}) + "\n" for c in cases))
    line = ["checks", "cases.yaml", "--outputs", "o.jsonl", "--inline", "--out", "run", "--format", "none"]
    assert main([*line, "--case-tag", "of-b", "--tag", "commit=abc"]) == 0
    assert RunFolder(Path("run")).info().tags == {"commit": "abc"}
    records = [json.loads(each) for each in Path("run/records.jsonl").read_text().splitlines()]
    assert [(each["id"], each["status"]) for each in records] == [("a", "skipped"), ("b", "passed")]


def test_without_options_a_command_is_asked_for_what_their_defaults_say() -> None:
    """The defaults of click and those of the typed values are the same."""
    seen: list[Invocation] = []
    each = {option.name: option for option in SHARED}
    made = command(lambda invocation: seen.append(invocation), *each.values(), name="x", text="X.")
    CliRunner().invoke(made, [], env=dict.fromkeys(("EVALQ_BROKER", "EVALQ_LEDGER")), catch_exceptions=False)
    assert seen == [Invocation()]


def test_it_is_made_once_and_stays() -> None:
    """Neither it nor a part of it can be changed on the way."""
    for value in (Invocation(), PlaceArguments(), OutputArguments(), StartArguments(), LiveArguments()):
        with pytest.raises(AttributeError):
            setattr(value, value.__struct_fields__[0], None)


@pytest.mark.parametrize(
    ("invocation", "error", "said"),
    [
        (Invocation(where=PlaceArguments(inline=True, broker="redis://h")), ConfigError, "--inline uses no broker"),
        (Invocation(where=PlaceArguments(ledger="redis://h")), ConfigError, "a ledger needs a broker"),
        (Invocation(start=StartArguments(detach=True)), UsageError, "--detach needs --broker"),
    ],
)
def test_places_that_do_not_go_together_are_refused(
    invocation: Invocation, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is begun."""
    for name in ("EVALQ_BROKER", "EVALQ_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(error, match=said):
        invocation.backend()


def test_every_command_is_declared_in_the_one_way() -> None:
    """Its callback hands on an invocation: none takes what click has read as it is."""
    context = click.Context(cli)
    for name in cli.list_commands(context):
        made = cli.get_command(context, name)
        for each in made.commands.values() if isinstance(made, click.Group) else [made]:
            assert each is not None
            assert each.callback is not None
            assert each.callback.__module__ == command.__module__, (name, each.name)


def test_the_same_for_jobs_and_sweeps() -> None:
    """What a user leaves open is what a job and a sweep take it for."""
    asked = StartArguments(tags=("a=b", "c="), once=None).options(5)
    assert (asked.tags, asked.once, asked.unpack_bytes, asked.suite) == ({"a": "b", "c": ""}, "", 5, "default")
    with pytest.raises(UsageError, match="--tag a: a note kept with the run is written as key=value"):
        StartArguments(tags=("a",)).options(5)
    assert LiveArguments(target="t").options() == SweepOptions("t")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_names_with_plain_underscores(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a word Markdown needs no escape there; at its ends, and in files, it stays."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    echo_markdown("pass\\_rate, \\_a\\_")
    assert capsys.readouterr().out == ("pass_rate, \\_a\\_\n" if terminal else "pass\\_rate, \\_a\\_\n")
