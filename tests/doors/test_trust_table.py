"""The trust table: each writer tries to choose each thing, and nothing of it is run, called, sent or read.

Beside them stand the tests of the mechanisms: `test_run_folders.py`, `test_judge_replies.py`, `test_keys_of_others.py`,
`test_messages.py`, `test_calls.py`, `tests/importing/test_promptfoo_addresses.py`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from evalq.evalcore.errors import EvalqError, UsageError, WireError
from evalq.evalcore.evaluators.checks.score import OutputScorer
from evalq.evalcore.evaluators.checks.stages import VerdictStage
from evalq.evalcore.model.calls import Output
from evalq.evalcore.model.manifest import PlannedInput
from evalq.evalcore.trust import TABLE, WRITERS, Reach, Thing, Writer, allows, refuse
from evalq.producer.cli import cli
from evalq.producer.door.request import Allowed, read_request, starts
from evalq.producer.importing import sources
from evalq.producer.importing.imported import ImportRequest, write
from evalq.producer.suites.suite_file import load_suite
from evalq.workers.broker.message import Hint, envelope, read_hint, rewritten
from evalq.workers.inputs import find
from evalq.workers.targets import Call, Caller
from evalq.workers.targets.config import choose, load_targets
from tests.unit.checks.helpers import line, params_of

OTHERS = [writer for writer in Writer if writer not in (Writer.COMMAND_LINE, Writer.SETTINGS)]
KEY = "key-of-this-machine"
PRIVATE = "words of a private file"


class Traps:
    """What must not happen: a program that leaves a mark, a server that counts, a key, a file and a variable."""

    def __init__(self, folder: Path, port: int, accepted: list[bytes]) -> None:
        self.mark = folder / "elsewhere" / "mark"
        self.private = folder / "elsewhere" / "private.jsonl"
        self.program = [sys.executable, "-c", f"open({str(self.mark)!r}, 'w')"]
        self.host = f"http://127.0.0.1:{port}/v1"
        self.accepted = accepted
        self.private.parent.mkdir()
        self.private.write_text(json.dumps({"case": "a", "id": "a", "input": PRIVATE, "output": PRIVATE}) + "\n")

    def names(self, thing: Thing) -> dict[str, Any]:
        """How a file that may be anybody's would choose ``thing``, in every spelling that evalq has for it anywhere."""
        target = {"kind": "command", "argv": self.program}
        named: dict[Thing, dict[str, Any]] = {
            Thing.PROGRAM: {"argv": self.program, "kind": "command", "exec": self.program, "targets": {"t": target},
                            "function": "os:getcwd", "checks_module": "os:getcwd"},
            Thing.HOST: {"base_url": self.host, "url": self.host, "broker": self.host, "ledger": self.host,
                         "apiBaseUrl": self.host},
            Thing.KEY: {"api_key_env": "TRUST_KEY", "apiKey": KEY, "headers": {"Authorization": "{{env.TRUST_KEY}}"}},
            Thing.PATH: {"file": str(self.private), "outputs": [str(self.private)], "path": str(self.private),
                         "system_prompt": str(self.private), "$ref": f"file://{self.private}"},
            Thing.VARIABLE: {"env": ["TRUST_KEY"], "environment": {"A": "{{env.TRUST_KEY}}"}, "text": "${TRUST_KEY}"},
        }  # fmt: skip
        return named[thing]

    def check(self, *texts: str) -> None:
        """Nothing was run, called or sent, and ``texts`` hold neither the key nor the private file."""
        assert not self.mark.exists(), "a program was run"
        assert self.accepted == [], "a server was called"
        for text in texts:
            assert KEY not in text
            assert PRIVATE not in text


@pytest.fixture
def traps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Traps]:
    """In a folder of the test's own, which is not the current one."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TRUST_KEY", KEY)
    for name in [name for name in os.environ if name.startswith("EVALQ_")]:
        monkeypatch.delenv(name)
    accepted: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    accepted.append(server.accept()[0].recv(1 << 16))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        yield Traps(tmp_path, server.getsockname()[1], accepted)
        over.set()
        thread.join()


def ran(*args: str) -> str:
    """What a command says; it may fail, and has no traceback."""
    done = CliRunner().invoke(cli, [*args])
    assert done.exception is None or isinstance(done.exception, SystemExit | EvalqError), done.exception
    return f"{done.output} {done.exception or ''}"


def everything(folder: Path) -> str:
    """All that stands in files below ``folder``."""
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


def a_run_folder(traps: Traps, thing: Thing) -> list[str]:
    """Every file of one says it, and each command that goes on with one is tried."""
    run = Path("evalq-runs/x")
    run.mkdir(parents=True)
    named = traps.names(thing)
    inputs = [str(traps.private) if thing is Thing.PATH else "cases.json"]
    request = {"inputs": inputs, "params": {}, "options": named}
    facts = {"run": "checks-1", "evaluator": "checks", "state": "interrupted", "started": "2026-01-01T00:00:00+00:00"}
    info = {**facts, "request": request, "targets": "evalq-runs/x/t.yaml", "server": f"--broker {traps.host}", **named}
    (run / "run.json").write_text(json.dumps(info))
    (run / "sweep.json").write_text(json.dumps({"request": request, "live": {"target": "t", **named}}))
    (run / "t.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": traps.program}}}))
    commands = (("resume", "evalq-runs/x"), ("resume",), ("retry", "evalq-runs/x", "--errors"),
                ("extend", "evalq-runs/x", "--repeat", "3"), ("report", "evalq-runs/x"), ("status",))  # fmt: skip
    return [ran(*args) for args in commands]


def a_suite(traps: Traps, thing: Thing) -> list[str]:
    """A run of it says it, by every key."""
    Path("cases.json").write_text(json.dumps({"cases": [{"id": "a", "input": "x", "checks": ["is-json"]}]}))
    said = []
    for key, value in traps.names(thing).items():
        written: dict[str, Any] = {"evaluator": "checks", "cases": ["cases.json"], key: value}
        if thing is Thing.PATH:
            written = {"evaluator": "checks", "cases": ["cases.json"], "outputs": [str(traps.private)]}
        Path("suite.yaml").write_text(yaml.safe_dump({"runs": [written]}))
        with pytest.raises(EvalqError) as error:
            load_suite("suite.yaml")
        said.append(str(error.value))
    return said


def a_cases_file(traps: Traps, thing: Thing) -> list[str]:
    """A case says it, and its checks, judge and rows of another file."""
    named = traps.names(thing)
    case = {"id": "a", "input": "x", "checks": [{"rubric": "fine", "judge": "t"}], **named}
    rows = {"file": str(traps.private), "checks": ["is-json"]}
    texts = []
    for cases in ([case], [rows], [{"id": "a", "input": "{{env.TRUST_KEY}} ${TRUST_KEY}", "checks": ["is-json"]}]):
        Path("cases.json").write_text(json.dumps({"cases": cases}))
        Path("outputs.jsonl").write_text('{"case": "a", "output": {}}\n')
        texts.append(ran("checks", "cases.json", "--outputs", "outputs.jsonl", "--inline", "--out", "run"))
    return texts


def an_import(traps: Traps, thing: Thing) -> list[str]:
    """A configuration says it, of a provider, of a prompt and of a test."""
    named = traps.names(thing)
    provider = {"id": "openai:chat:m", "config": named}
    exec_ = f"exec:{' '.join(traps.program)}"
    config = {"prompts": ["{{q}}", f"file://{traps.private}"], "providers": [provider, exec_, "file://evil.py"],
              "tests": [{"vars": {"q": "x", "r": f"file://{traps.private}"}, "assert": [{"type": "is-json"}]},
                        f"file://{traps.private}"], **({"x": named} if thing is Thing.PATH else {})}  # fmt: skip
    Path("promptfooconfig.json").write_text(json.dumps(config))
    found = sources.read("promptfoo", Path("promptfooconfig.json"), ImportRequest())
    write(found, Path("out"), force=True)
    # What it proposes is called when its user names the file, and no sooner.
    return [everything(Path("out"))]


def the_ledger(traps: Traps, thing: Thing) -> list[str]:
    """A header names an input, or anything else: a worker finds it under its roots, or nowhere."""
    named = traps.names(thing)
    for path in (str(traps.private), "../elsewhere/private.jsonl", "/etc/passwd", "a/../../elsewhere/private.jsonl"):
        assert find(PlannedInput(name="x", given="x", path=path, columns=()), [Path.cwd()]) is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"name": "x", **named}), type=PlannedInput)
    return []


def a_message(traps: Traps, thing: Thing) -> list[str]:
    """It has three arguments of known types: whatever else it names is left away, or refuses it."""
    message = json.loads(envelope("id", Hint("norun", 3, 0), "evalq.bulk"))
    named = traps.names(thing)
    for part in ("headers", "properties"):
        more = {**named, **message, part: {**named, **message[part]}}
        kept = rewritten(json.dumps(more).encode(), "evalq.bulk").decode()
        assert not [value for value in map(json.dumps, named.values()) if value in kept]
    for body in ([["norun", 3, 0], named, {}], [["norun", 3, named], {}, {}], [[named, 3, 0], {}, {}]):
        packed = base64.b64encode(json.dumps(body).encode()).decode()
        with pytest.raises(WireError):
            read_hint(json.dumps({**message, "body": packed}).encode())
    return []


def a_request(traps: Traps, thing: Thing) -> list[str]:
    """The keyword arguments of evalq.submit say it, beside the suite and in a run, by every key."""
    Path("cases.json").write_text(json.dumps({"cases": [{"id": "a", "input": "x", "checks": ["is-json"]}]}))
    allowed, said = Allowed(Path.cwd().resolve(), (Path.cwd().resolve(),), None), []
    for key, value in traps.names(thing).items():
        written: dict[str, Any] = {"evaluator": "checks", "cases": ["cases.json"], key: value}
        for sent in ({"run": written}, {"suite": "cases.json", key: value}, {key: value}):
            with pytest.raises(EvalqError) as error:
                starts(read_request(sent), allowed)
            said.append(str(error.value))
    return said


def an_answer(traps: Traps, thing: Thing) -> list[str]:
    """The agent under test says it: its words are recorded, and checked as words."""
    Path("cases.json").write_text(json.dumps({"cases": [{"id": "a", "input": "x", "checks": ["is-json"]}]}))
    said = {**traps.names(thing), "text": "{{env.TRUST_KEY}} ${TRUST_KEY} $(id)"}
    program = [sys.executable, "-c", f"print({json.dumps(said)!r})"]
    Path("t.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": program}}}))

    async def go() -> str:
        async with Caller(load_targets("t.yaml")["t"]) as caller:
            return (await caller.call(Call("x"))).text

    return ["" if thing is Thing.KEY else asyncio.run(go())]


def a_judge_reply(traps: Traps, thing: Thing) -> list[str]:
    """The judge says it, with the marker and all: of its reply the verdict and a reason are read."""
    params = params_of([{"id": "a", "checks": [{"rubric": "polite"}]}])
    stage, named = VerdictStage(params, {"a": "Say it."}, {}, "grader", {}), traps.names(thing)
    named = {} if thing is Thing.KEY else named

    def replied(question: Any) -> list[Output]:
        marker = question.prompt.text.rpartition('"marker": "')[2][:16]
        reply = msgspec.Raw(msgspec.json.encode({"marker": marker, "pass": True, "judge": "other", **named}))
        return [Output(0, question.prompt.case, "", 0, question.prompt.digest, question.target, "c", reply)]

    test = OutputScorer(params).test(stage.add_replies(line("a", 0), replied))
    assert test.status == "passed"
    return [test.reason]


TRIES: dict[Writer, Callable[[Traps, Thing], list[str]]] = {
    Writer.RUN_FOLDER: a_run_folder,
    Writer.SUITE: a_suite,
    Writer.CASES_FILE: a_cases_file,
    Writer.IMPORT: an_import,
    Writer.LEDGER: the_ledger,
    Writer.MESSAGE: a_message,
    Writer.REQUEST: a_request,
    Writer.ANSWER: an_answer,
    Writer.JUDGE_REPLY: a_judge_reply,
}


@pytest.mark.parametrize("thing", Thing, ids=lambda thing: thing.name.lower())
@pytest.mark.parametrize("writer", OTHERS, ids=lambda writer: writer.name.lower())
def test_nobody_else_chooses(traps: Traps, writer: Writer, thing: Thing) -> None:
    """Every pair of writer and thing."""
    texts = TRIES[writer](traps, thing)
    traps.check(*texts)
    assert allows(writer, thing, traps.private, [Path.cwd()]) is False
    with pytest.raises(UsageError, match=f"a {writer.value} does not choose the {thing.value}"):
        refuse(writer, thing, str(traps.private), "here", "start anew", [Path.cwd()])


def test_the_table_has_a_row_for_each_writer() -> None:
    """The user alone has all; nobody else has more than files within folders that are named."""
    assert set(TABLE) == set(WRITERS) == set(Writer)
    assert set(TRIES) == set(OTHERS)
    for writer, row in TABLE.items():
        reaches = {thing: row.reach(thing) for thing in Thing}
        if writer in OTHERS:
            assert set(reaches.values()) <= {Reach.NONE, Reach.WITHIN}
            assert [thing for thing, reach in reaches.items() if reach is Reach.WITHIN] in ([], [Thing.PATH])
            assert bool(row.within) == (reaches[Thing.PATH] is Reach.WITHIN)
        else:
            assert set(reaches.values()) == {Reach.ANY}


def test_a_path_is_within_by_where_it_leads(tmp_path: Path) -> None:
    """Links and dots are followed; what has no name of a file is nowhere."""
    inner, outer = tmp_path / "in", tmp_path / "out"
    for folder in (inner, outer):
        folder.mkdir()
        (folder / "file").touch()
    (inner / "link").symlink_to(outer / "file")
    (inner / "round").symlink_to(inner / "round")
    (tmp_path / "door").symlink_to(inner)
    fine = (inner, inner / "file", inner / "none", inner / ".." / "in" / "file", tmp_path / "door" / "file")
    wrong = (outer / "file", inner / "link", inner / ".." / "out", tmp_path / "in2", "/", f"{inner}\0/file")
    for writer in (Writer.RUN_FOLDER, Writer.SUITE, Writer.CASES_FILE, Writer.IMPORT, Writer.LEDGER, Writer.REQUEST):
        assert all(allows(writer, Thing.PATH, path, [inner]) for path in fine)
        assert not any(allows(writer, Thing.PATH, path, [inner]) for path in wrong)
        assert not any(allows(writer, Thing.PATH, path) for path in fine), "no folder, no path"
    for writer in (Writer.ANSWER, Writer.MESSAGE, Writer.JUDGE_REPLY):
        assert not any(allows(writer, Thing.PATH, path, ["/"]) for path in fine)


def test_a_target_gives_others_its_listed_choices_alone(traps: Traps) -> None:
    """A suite chooses by the name of a target: no program, host, key, path or variable is among what may be listed."""
    for key in ("base_url", "headers", "api_key_env", "kind"):
        entry = {"kind": "openai", "base_url": traps.host, "model": "m", "variable": {key: ["x"]}}
        Path("t.yaml").write_text(json.dumps({"targets": {"t": entry}}))
        with pytest.raises(EvalqError):
            load_targets("t.yaml")
    Path("t.yaml").write_text(json.dumps({"targets": {"t": {"kind": "command", "argv": ["cat"]}}}))
    for name in ("t[argv=x]", "t[env=TRUST_KEY]", "t[base_url=x]"):
        with pytest.raises(EvalqError):
            choose(load_targets("t.yaml"), name)


@pytest.mark.parametrize("how", ["baseline", "baseline among the runs", "link in a folder", "pattern", "link"])
def test_a_suite_reads_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """By the name of its baseline, and by a link in a folder that it names: refused, as a path in so many words is."""
    here, private = tmp_path / "here", tmp_path / "elsewhere" / "private.jsonl"
    for folder in (here / "data", private.parent):
        folder.mkdir(parents=True)
    private.write_text(json.dumps({"case": "a", "output": PRIVATE}) + "\n")
    monkeypatch.chdir(here)
    Path("cases.json").write_text(json.dumps({"cases": [{"id": "a", "input": "x", "checks": ["is-json"]}]}))
    Path("data/own.jsonl").write_text('{"case": "a", "output": {}}\n')
    named = {"link in a folder": "data", "pattern": "data/*.jsonl", "link": "data/x.jsonl"}.get(how, "data/own.jsonl")
    gates = {"gates": [{"metric": "checks.pass_rate", "max_drop": 0.1}]}
    suite = {"runs": [{"evaluator": "checks", "cases": ["cases.json"], "outputs": [named]}], "policy": gates}
    Path("suite.yaml").write_text(yaml.safe_dump({**suite, "baseline": "main"}))
    load_suite("suite.yaml")
    if how.startswith("baseline"):
        climbing = f"../../{tmp_path.name}/elsewhere" if how != "baseline" else str(private.parent)
        Path("suite.yaml").write_text(yaml.safe_dump({**suite, "baseline": climbing}))
    else:
        Path("data/x.jsonl").symlink_to(private)
    with pytest.raises(EvalqError, match="in neither the suite's folder nor the current one"):
        load_suite("suite.yaml")
    load_suite("suite.yaml", [private.parent])
