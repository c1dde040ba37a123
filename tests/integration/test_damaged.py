"""The messages to the user of a damaged ledger, and that they help."""

from __future__ import annotations

import re
from pathlib import Path

from evalq.evalcore.model.canonical import canonical_json
from evalq.workers.ledger.keys import RunKeys
from tests.integration.harness import HAZARDS, Server, evalq, info, running_fleet


def test_what_is_said_of_a_damaged_run_mends_it(server: Server, tmp_path: Path) -> None:
    """Exit 3 and a sentence instead of a traceback; its advice leads to the report of an inline run."""
    lines = (canonical_json({"id": f"r{number}", "value": number}) + b"\n" for number in range(40))
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    args = ("hazards", "in.jsonl", "--chunk-size", "10", "--format", "none", "-q")
    broker = ("--broker", server.url)

    def command(*words: str) -> tuple[int, str]:
        done = evalq(*words, cwd=tmp_path, PYTHONPATH=HAZARDS)
        return done.returncode, done.stdout + done.stderr

    assert command(*args, "--inline", "--out", "inline")[0] == 0
    ended, said = command(*args, *broker, "--detach", "--out", "run")
    assert ended == 0, said
    run = info(tmp_path / "run")["run"]
    server.client.hset(RunKeys.of(run).meta, "records", b"\xff\xfe")
    for words in (("status", "run"), ("resume", "run")):
        ended, said = command(*words, *broker)
        assert (ended, "Traceback" in said) == (3, False), said
        assert "its data in the ledger is damaged" in said
    (tmp_path / "away").mkdir()  # where no folder is, the ledger's part is listed
    listed = evalq("list", *broker, cwd=tmp_path / "away")
    assert listed.returncode == 0, listed.stderr
    assert re.search(rf"{run} +damaged ", listed.stdout)
    message = re.search(r"Delete its keys there \((.+?)\), then run evalq resume", said)
    assert message is not None, said
    server.client.delete(*server.client.scan_iter(match=message[1]))
    with running_fleet(server.url, tmp_path, PYTHONPATH=HAZARDS) as fleet:
        fleet.add(1)
        ended, said = command("resume", "run", *broker, "--format", "none")
    assert ended == 0, said
    report = Path("report.json")
    assert (tmp_path / "run" / report).read_bytes() == (tmp_path / "inline" / report).read_bytes()
