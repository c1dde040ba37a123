"""Keys have one name, in Python, in scripts and in the rights of the server's users; every script compiles."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from evalq.evalcore.model.life import LEDGER_STATES
from evalq.workers.ledger.keys import PREFIX, SHARED, HistoryKeys, LookKeys, RateLimitKeys, RunKeys, SweepKeys
from evalq.workers.ledger.scripts import (
    HISTORY,
    LOOKS,
    MONITOR,
    RATE_LIMIT,
    RUNS,
    SWEEPS,
    Claimed,
    Committed,
    ScriptFamily,
    StateAfter,
    parse_reply,
    script_text,
)
from evalq.workers.monitor import COMMANDS
from tests.integration.harness import running_server

FAMILIES = (RUNS, SWEEPS, HISTORY, LOOKS, MONITOR, RATE_LIMIT)
LUA = Path(str(files("evalq.workers.ledger") / "lua"))
SHARED_BODIES = ("close", "release")
PARTS_OF_SCRIPTS = {"prelude", "clock", "driver", "expire"}
USERS = Path(__file__).parents[3] / "deploy" / "redis" / "users.acl"


def _bodies(family: ScriptFamily) -> list[str]:
    own = [path.stem for path in (LUA / family.folder).glob("*.lua")]
    return sorted({*own, *(SHARED_BODIES if family in (RUNS, SWEEPS) else ())} - PARTS_OF_SCRIPTS)


def test_every_script_names_keys_that_there_are_and_compiles(tmp_path: Path) -> None:
    """On a real server, each of every family; and no file belongs to none."""
    seen = {path.parent.name for path in LUA.rglob("*.lua")}
    assert seen == {family.folder for family in FAMILIES} | {"common"}
    with running_server(tmp_path) as server:
        for family in FAMILIES:
            for name in _bodies(family):
                server.client.script_load(script_text(family, name))
    for path in LUA.rglob("*.lua"):
        assert not re.search(r"KEYS\[\d", path.read_text()), f"{path} knows a key by its number"


def test_a_script_that_names_no_key_is_refused() -> None:
    """At once, when it is put together, and not where it runs."""
    with pytest.raises(KeyError, match="flight"):
        script_text(HISTORY, "record", "local now_us = keys.flight")
    with pytest.raises(KeyError, match="nothing"):
        script_text(HISTORY, "record", "local now_us = shared.nothing")


@pytest.mark.parametrize(
    ("family", "name", "answers"), [(RUNS, "claim", Claimed), (RUNS, "commit", Committed)], ids=["claim", "commit"]
)
def test_a_script_answers_what_its_type_says(family: ScriptFamily, name: str, answers: Any) -> None:
    """Each answer in the Lua is one that Python knows, and each that Python knows is given somewhere."""
    text = (LUA / family.folder / f"{name}.lua").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    assert set(re.findall(r"return \{?'(\w+)'", code)) == set(get_args(answers))


def test_closing_answers_a_state_of_the_ledger() -> None:
    """Those of the table of a run's life, and "gone"; anything else that a server says is refused."""
    assert set(get_args(StateAfter)) == {*LEDGER_STATES, "gone"}
    assert parse_reply(StateAfter, b"paused") == "paused"
    with pytest.raises(ValueError, match="which no script of this evalq version does"):
        parse_reply(StateAfter, b"calling")


def test_no_two_things_have_one_key() -> None:
    """Names of runs, sweeps, histories and targets may be alike: their keys are not."""
    keys = [*SHARED, *RunKeys.of("x"), *SweepKeys.of("x"), *HistoryKeys.of("x"), *LookKeys.of("x")]
    keys += RateLimitKeys.of("x")
    assert len(keys) == len(set(keys))
    assert all(key.startswith(PREFIX) for key in keys)


def test_what_doctor_looks_for_is_what_the_rights_name() -> None:
    """Producers and workers have the commands that doctor asks a server for, and no others but for connections."""
    lines = [line for line in USERS.read_text().splitlines() if line.startswith(("user evalq-p", "user evalq-w"))]
    assert len(lines) == 2
    granted = {word for line in lines for word in line.split() if re.fullmatch(r"\+[a-z_|]+", word)}
    assert {word.removeprefix("+") for word in granted} == set(COMMANDS)


def test_the_exporters_user_may_read_what_its_script_reads_and_nothing_else() -> None:
    """The rights in deploy/redis/users.acl are those that the script names, by the names of keys."""
    (line,) = (line for line in USERS.read_text().splitlines() if line.startswith("user evalq-exporter "))
    granted = {word.removeprefix("%R~") for word in line.split() if "~" in word}
    text = (LUA / "monitor" / "scrape.lua").read_text()
    run_parts, sweep_parts = (set(re.findall(rf"{kind}_key\('(\w+)'\)", text)) for kind in ("run", "sweep"))
    assert run_parts < set(RunKeys._fields)
    assert sweep_parts < set(SweepKeys._fields)
    of_one = {"run", "sweep", "worker", "caller", "follower", "history", "ended"}
    named = set(re.findall(r"shared\.(\w+)", text))
    assert of_one < named
    wanted = {getattr(SHARED, name) for name in named - of_one}
    wanted |= {getattr(SHARED, name) + "*" for name in of_one - {"run", "sweep"}}
    wanted |= {f"{SHARED.run}*:{part}" for part in run_parts} | {f"{SHARED.sweep}*:{part}" for part in sweep_parts}
    queues = {"evalq.*"}  # with what the transport keeps beside them
    assert granted == wanted | queues
