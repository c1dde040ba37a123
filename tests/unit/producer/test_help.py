"""`evalq --help` tells of all evaluations that are installed, whatever is wrong with one of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from evalq.evalcore.contract import plugins
from evalq.producer.cli import cli, main

DAMAGED = {
    "unparsed.py": b"def (:\n",
    "unread.py": b"\xff\xfe",
    "nul.py": b"\0",
    "raising/__init__.py": b"1 / 0\n",
    "raising/inner.py": b'"""Never seen."""\n',
}


def test_a_plug_in_that_cannot_be_read_is_one_line_of_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told as ever, also those that stand in an archive or are compiled."""
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
