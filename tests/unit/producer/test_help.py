"""`evalq --help` tells of all evaluations that are installed, whatever is wrong with one of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from evalq.evalcore.contract import plugins
from evalq.producer import commands
from evalq.producer.cli import cli, main

DAMAGED = {
    "unparsed.py": b"def (:\n",
    "unread.py": b"\xff\xfe",
    "nul.py": b"\0",
    "raising/__init__.py": b"1 / 0\n",
    "raising/inner.py": b'"""Never seen."""\n',
}


def test_a_plug_in_that_cannot_be_read_is_one_line_of_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are reported as ever, also those that stand in an archive or are compiled."""
    for name, text in {**DAMAGED, "latin.py": '# coding: latin-1\n"""caf\u00e9"""\n'.encode("latin-1")}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    with zipfile.ZipFile(tmp_path / "plug.zip", "w") as archive:
        archive.writestr("packed.py", '"""Packed."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "plug.zip")
    modules = ["unparsed", "unread", "nul", "raising.inner", "gone", "msgspec._core", "packed", "latin"]
    entries = {f"x{number}": EntryPoint(f"x{number}", f"{module}:E", "g") for number, module in enumerate(modules)}
    monkeypatch.setattr(plugins, "entries", lambda: entries)
    with cli.context_class(cli) as ctx:
        lines = [line.split(maxsplit=1) for line in cli.get_help(ctx).splitlines() if line.startswith("  x")]
    told = {entries[line[0]].module: line[1] if len(line) > 1 else "" for line in lines}
    assert told == dict.fromkeys(modules[:5], "(cannot be imported)") | {
        "msgspec._core": "", "packed": "Packed.", "latin": "caf\u00e9",
    }  # fmt: skip


@pytest.mark.parametrize(("ends", "told"), [("0", "sys.exit(0)"), ("1", "sys.exit(1)"), ("'no'", "sys.exit('no')")])
def test_a_plug_in_that_exits_answers_for_nobody(
    ends: str,
    told: str,
    tmp_path: Path,
    register: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At its import: 0 would be a good end of a command that did nothing, and 1 a policy's answer."""
    module = f"exits_{len(ends)}_{ends.strip(chr(39))}"
    (tmp_path / f"{module}.py").write_text(f"import sys\nsys.exit({ends})\n")
    monkeypatch.syspath_prepend(tmp_path)
    register(("x", f"{module}:E"))
    for command in (["x", "in.jsonl"], ["x", "--help"]):
        assert main(command) == 3, command
        assert f"a plug-in (above) ended the command by {told}; nothing was finished" in capsys.readouterr().err
    assert main(["doctor"]) == 3
    assert "wrong  evaluator x cannot be loaded: SystemExit: " in capsys.readouterr().out


def _options(command: click.Command, wanted: str) -> list[str]:
    done = CliRunner().invoke(command, [wanted], prog_name="evalq")
    assert done.exit_code == 0, done.output
    return [line.split()[0].rstrip(",") for line in done.output.splitlines() if line.startswith("  -")]


def _commands() -> Iterator[click.Command]:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        yield from command.commands.values() if isinstance(command, click.Group) else (command,)


def test_a_help_shows_at_most_fifteen_options_and_all_on_request() -> None:
    """Of every command; those shown are among all of them, in their order, and none is listed twice."""
    long = 0
    for command in _commands():
        short = _options(command, "--help")
        assert len(short) <= 15, command.name
        if "--help-all" in short:
            long += 1
            full = _options(command, "--help-all")
            assert len(full) == len(set(full)) > 15
            assert [name for name in full if name in short] == short
            own = {param.opts[0] for param in command.params if isinstance(param, click.Option)}
            assert len(full) == len(own) + 2
    assert long > 6


def test_commands_are_grouped_by_what_a_user_wants_to_do() -> None:
    """Each command stands in one group, also an evaluation that a package adds."""
    with cli.context_class(cli) as ctx:
        lines = cli.get_help(ctx).splitlines()
    titles = [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Options", "Evaluate", "Look", "Decide", "Operate"]
    grouped = [name for group in commands.GROUPS.values() for name in group]
    assert sorted(grouped) == sorted(commands.names())
    listed = [line.split()[0] for line in lines if line.startswith("  ") and line[2:3].isalpha()]
    assert sorted(listed[1:]) == sorted([*grouped, *plugins.names(), "score"])
