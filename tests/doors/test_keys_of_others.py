"""Programs of targets look for keys that they were not given: nothing shows them, and no answer holds them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evalq.workers.processes import environment
from tests.integration.harness import evalq, new_interpreters

KEY, GRANTED = "other-0123456789", "granted-0123456789"
NOBODY = 65534
SPY = f"""
import json, os, pathlib, sys
asked = json.load(sys.stdin)
if asked["prompt"] == "say it":
    print("it is " + "{KEY}"[:8] + "{KEY}"[8:] + " and " + os.environ["SPY_TOKEN"] + " of " + os.environ["SPY_MODE"])
    sys.exit()
looked, found = 0, []
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        around = (process / "environ").read_bytes()
        looked += 1
    except OSError:
        continue
    if b"{KEY}"[:8] + b"{KEY}"[8:] in around:
        found.append((process / "cmdline").read_bytes().replace(b"\\0", b" ").decode())
print(json.dumps({{"looked": looked > 0, "found": found}}))
"""
TARGETS: dict[str, Any] = {
    "spy": {"kind": "command", "argv": [sys.executable, "spy.py"], "env": ["SPY_TOKEN", "SPY_MODE"], "output": "text"},
    "other": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key_env": "OTHER_WORD"},
}
CASES = (
    "cases: [{id: look, input: look, checks: [{contains: looked}]}, {id: say, input: say it, checks: [{contains: it}]}]"
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """What a program that spies answers in a sweep of its own command: {case: its line}, and the report."""
    folder = tmp_path_factory.mktemp("spied")
    (folder / "spy.py").write_text(SPY)
    (folder / "targets.yaml").write_text(json.dumps({"targets": TARGETS}))
    (folder / "cases.yaml").write_text(CASES)
    args = ("checks", "cases.yaml", "--target", "spy", "--targets", "targets.yaml", "--out", "run", "--format", "none")
    with new_interpreters():  # a forked process shows the environment of what it was forked from
        done = evalq(*args, cwd=folder, OTHER_WORD=KEY, SPY_TOKEN=GRANTED, SPY_MODE="harmless-mode")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (folder / "run" / "outputs.jsonl").read_text().splitlines()]
    return {line["case"]: line for line in lines}, json.loads((folder / "run" / "report.json").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_no_process_of_evalq_shows_another_targets_key(outputs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Neither the command, nor its workers, servers and their guards: as this user, root too."""
    assert json.loads(outputs[0]["look"]["output"]) == {"looked": True, "found": []}


def test_all_keys_of_the_file_are_cut_out_of_answers(outputs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """Also another target's, and a granted one; the attempt says so, and the report counts it."""
    line, report = outputs[0]["say"], outputs[1]
    assert line["output"].strip() == "it is *** and *** of harmless-mode"
    assert line["attempts"][-1]["cut"] == 2
    assert "2 secrets of this machine cut out of the reply" in line["attempts"][-1]["reason"]
    (omission,) = report["left_out"]
    assert (omission["count"], omission["instead"], omission["what"]) == (2, "***", "secret in an answer")


def _ordinary() -> list[str]:
    """The command that runs Python as a user who is not root; skips where there is none."""
    if os.geteuid() != 0:
        return [sys.executable]
    python = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), "")
    if not python or shutil.which("setpriv") is None:
        pytest.skip("root here, and no Python that another user can start by setpriv")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python]


SEALED = """
import importlib.util, os, subprocess, sys
spec = importlib.util.spec_from_file_location("secrecy", sys.argv[1])
secrecy = importlib.util.module_from_spec(spec)
spec.loader.exec_module(secrecy)
if sys.argv[2] == "seal":
    secrecy.seal(["OTHER_WORD"])
assert os.environ["OTHER_WORD"] == "other-0123456789"
look = '''
for name in ("environ", "mem", "maps"):
    try:
        data = open(f"/proc/{%d}/{name}", "rb").read(1 << 16)
        print(name, "key" if b"other-01234" in data else "open")
    except OSError as error:
        print(name, type(error).__name__)
''' % os.getpid()
print(subprocess.run([sys.executable, "-c", look], env={}, capture_output=True, text=True).stdout)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_an_ordinary_users_program_cannot_look_into_a_sealed_process(tmp_path: Path) -> None:
    """Neither at its environment nor at its memory; one that is not sealed shows both."""
    module = tmp_path / "secrecy.py"
    module.write_bytes(Path(environment.__file__).read_bytes())
    for folder in (tmp_path, *tmp_path.parents[:3]):
        if folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o055)
    said = {}
    for how in ("seal", "no"):
        command = [*_ordinary(), "-c", SEALED, str(module), how]
        done = subprocess.run(command, env={"OTHER_WORD": KEY}, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        said[how] = dict(line.split() for line in done.stdout.splitlines() if line)
    assert said["no"]["environ"] == "key", "the test would see it"
    assert said["seal"] == {"environ": "PermissionError", "mem": "PermissionError", "maps": "PermissionError"}


def test_keys_reach_a_helper_through_a_pipe_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not through the environment of the shell between the two; what is no secret goes as ever."""
    given = {"PATH": "/bin", "SHOP_API_KEY": KEY, "EVALQ_BROKER": "redis://:pw@h/0", "MODE": "fast", "TOKEN": "t"}
    around, held = environment.send_secrets(given, tmp_path)
    assert held is not None
    assert set(around) == {"PATH", "MODE", "EVALQ_HANDED"}
    assert not any(path.is_file() for path in tmp_path.iterdir()), "nothing is on a disk"
    for name in ("SHOP_API_KEY", "EVALQ_BROKER", "TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALQ_HANDED", around["EVALQ_HANDED"])
    environment.receive_secrets()
    os.close(held)
    assert {name: os.environ.pop(name) for name in ("SHOP_API_KEY", "EVALQ_BROKER", "TOKEN")} == {
        name: given[name] for name in ("SHOP_API_KEY", "EVALQ_BROKER", "TOKEN")
    }
    assert "EVALQ_HANDED" not in os.environ
    assert not list(tmp_path.iterdir())
