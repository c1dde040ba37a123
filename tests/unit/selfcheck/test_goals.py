"""Expected paths are looked up under their root and nowhere else, and the answer is part of the record."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evalq.evalcore.contract.evaluator import Batch
from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.evaluators.selfcheck import SelfCheckParams, evaluator, resolve_goals
from evalq.evalcore.evaluators.selfcheck.goals import MAX_SEARCHED_BYTES, resolve_command
from evalq.evalcore.records.json_values import RecordFault
from evalq.producer.cli import cli

OUT = [
    ("/etc/passwd", "an absolute path"),
    ("C:\\secret.txt", "an absolute path"),
    ("\\\\host\\share", "an absolute path"),
    ("../secret.txt", "'..' in a path"),
    ("a/../../secret.txt", "'..' in a path"),
    ("a\\..\\..\\secret.txt", "'..' in a path"),
    ("", "no path"),
    ("a\0b", "no path"),
    ("leads-out", "a symbolic link leads out"),
    ("folder-out/secret.txt", "a symbolic link leads out"),
    ("around", "a loop"),
    ("x" * 5000, "File name too long"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with files in it, and links that lead inside, outside and in circles."""
    (tmp_path / "secret.txt").write_text("secret")
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "login.ts").write_text("export function login() {}\n")
    (root / "src" / "blank.ts").write_text("")
    (root / "src" / "one.ts").write_text("1")
    (root / "inside").symlink_to("src/login.ts")
    (root / "leads-out").symlink_to(tmp_path / "secret.txt")
    (root / "folder-out").symlink_to(tmp_path)
    (root / "around").symlink_to("around")
    return root


def _looked(root: Path, *expected: Any) -> list[dict[str, Any]]:
    resolved = resolve_goals({"expectedPaths": list(expected)}, root)["goalVerification"]
    paths: list[dict[str, Any]] = resolved["paths"]
    assert resolved["passed"] is all(p["exists"] and p["nonEmpty"] and p["matches"] is not False for p in paths)
    return paths


@pytest.mark.parametrize(
    ("expected", "exists", "filled", "matches"),
    [
        ("src/login.ts", True, True, None),
        ("src", True, True, None),
        ("inside", True, True, None),
        ("src/blank.ts", True, False, None),
        ("src/one.ts", True, True, None),
        ("empty", True, False, None),
        ("src/missing.ts", False, False, None),
        ({"path": "src/login.ts"}, True, True, None),
        ({"path": "src/login.ts", "pattern": r"function\s+login"}, True, True, True),
        ({"path": "src/login.ts", "pattern": "logout"}, True, True, False),
        ({"path": "src", "pattern": "login"}, True, True, False),
    ],
)
def test_what_is_there_is_reported(root: Path, expected: Any, exists: bool, filled: bool, matches: bool | None) -> None:
    """Existence, content and pattern of files and folders, and links that stay inside."""
    (path,) = _looked(root, expected)
    assert (path["exists"], path["nonEmpty"], path["matches"]) == (exists, filled, matches)


@pytest.mark.parametrize(("path", "reason"), OUT)
def test_nothing_outside_the_root_is_looked_at(root: Path, path: str, reason: str) -> None:
    """Absolute paths, parents and links that lead out count as not reached, and say why."""
    (message,) = _looked(root, path)
    assert not message["exists"]
    assert reason in message["reason"] or reason == "a loop", message
    assert message["reason"]


def test_a_pipe_is_neither_opened_nor_reached(root: Path) -> None:
    """Opening one would wait for ever."""
    os.mkfifo(root / "pipe")
    assert _looked(root, {"path": "pipe", "pattern": "x"})[0]["reason"] == "neither a file nor a folder"


def test_a_pattern_without_linear_search_is_not_reached(root: Path) -> None:
    """An agent's pattern cannot hang the producer; the reason is kept."""
    assert "look-ahead" in _looked(root, {"path": "src/login.ts", "pattern": "(?=x)"})[0]["reason"]


def test_a_huge_file_is_searched_at_its_beginning(root: Path) -> None:
    """As far as the limit, and no further."""
    with (root / "huge.log").open("wb") as stream:
        stream.write(b"begin")
        stream.seek(MAX_SEARCHED_BYTES)
        stream.write(b"end")
    message = _looked(root, {"path": "huge.log", "pattern": "begin"}, {"path": "huge.log", "pattern": "end"})
    assert [path["matches"] for path in message] == [True, False]


def test_a_record_without_expected_paths_stays_as_it_is(root: Path) -> None:
    """Nothing is added, nothing is lost."""
    record = {"testOutput": "x", "more": [1]}
    assert resolve_goals(record, root) == record
    assert resolve_goals({**record, "expectedPaths": []}, root) == {**record, "expectedPaths": []}


def test_a_verification_that_the_agent_wrote_itself_is_replaced(root: Path) -> None:
    """Only what was really looked up counts."""
    given = {"expectedPaths": ["src/missing.ts"], "goalVerification": {"passed": True}}
    assert resolve_goals(given, root)["goalVerification"]["passed"] is False


@pytest.mark.parametrize(
    ("expected", "path"),
    [
        (3, r"\$\.expectedPaths"),
        ([3], r"\$\.expectedPaths\[0\]"),
        ([{"pattern": "x"}], r"\$\.expectedPaths\[0\]\.path: missing"),
    ],
)
def test_expected_paths_of_a_wrong_type_are_a_fault(root: Path, expected: Any, path: str) -> None:
    """With the path of what is wrong."""
    with pytest.raises(RecordFault, match=path):
        resolve_goals({"expectedPaths": expected}, root)


def test_a_root_that_is_none_is_an_error(tmp_path: Path) -> None:
    """A wrong root would make every goal fail; it is said at once."""
    with pytest.raises(ConfigError, match="is no folder"):
        resolve_goals({"expectedPaths": ["a"]}, tmp_path / "missing")


def test_the_command_resolves_a_file_of_records(root: Path, tmp_path: Path) -> None:
    """Record by record; a broken line stays for the evaluation to report."""
    given = tmp_path / "evidence.jsonl"
    given.write_bytes(b'{"expectedPaths":["src"]}\n\n{"testOutput":"x"}\n{"a":1,"a":2}\n{"expectedPaths":[3]}\n')
    (command,) = evaluator.command.commands
    printed = command.call({"evidence": str(given), "root": str(root)}).split("\n")
    assert json.loads(printed[0])["goalVerification"]["passed"] is True
    assert printed[1:] == ['{"testOutput":"x"}', '{"a":1,"a":2}', '{"expectedPaths":[3]}']


def test_the_command_says_what_it_lacks() -> None:
    """Both options are needed."""
    (command,) = evaluator.command.commands
    with pytest.raises(UsageError, match=r"^selfcheck-resolve needs --evidence and --root$"):
        command.call({"evidence": None, "root": ""})


def test_evaluating_reads_only_what_is_stored(root: Path) -> None:
    """Resolved, the goal counts; unresolved, the record is an error that says what to do; files may be gone by then."""
    record = {"expectedPaths": ["src/login.ts"], "testOutput": "1 passed"}
    resolved = resolve_goals(record, root)
    for path in sorted(root.rglob("*.ts")):
        path.unlink()
    data = json.dumps(resolved).encode() + b"\n" + json.dumps(record).encode()
    outcome = evaluator.evaluate(Batch("f", 1, data), SelfCheckParams())
    first, second = map(json.loads, outcome.lines)
    assert first["result"]["goalVerification"]["passed"] is True
    assert first["details"] == "SelfCheck: false, GoalBackward: true"
    assert second["status"] == "error"
    assert "$.expectedPaths: not resolved: run 'evalq selfcheck-resolve --evidence FILE --root DIR" in second["reason"]
    assert (outcome.state.goals, outcome.state.goals_reached) == (1, 1)


def test_evidence_that_is_no_file_is_an_input_error(tmp_path: Path) -> None:
    """Not there, a folder, or a pipe that nobody writes to: named at once."""
    os.mkfifo(tmp_path / "pipe")
    (command,) = evaluator.command.commands
    for path in (tmp_path / "no", tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="no evidence to resolve"):
            command.call({"evidence": str(path), "root": str(tmp_path)})


@pytest.mark.parametrize(("resolved", "code"), [(1, 0), (0, 5)])
def test_records_not_looked_up_are_not_called_broken(tmp_path: Path, resolved: int, code: int) -> None:
    """Standard error and report.md say how many of nine were left out and which command looks them up; a run in which
    that leaves nothing to check ends as one that evaluated nothing.
    """
    record = {"testOutput": "3 passed", "expectedPaths": ["report.txt"]}
    done = {**record, "goalVerification": {"passed": True}}
    given = tmp_path / "claims.jsonl"
    given.write_text("".join(json.dumps(one) + "\n" for one in [done] * resolved + [record] * (9 - resolved)))
    ended = CliRunner().invoke(cli, ["selfcheck", str(given), "--inline", "--out", str(tmp_path / "run")])
    assert getattr(ended.exception, "exit_code", ended.exit_code) == code
    left_out = f"{9 - resolved} of 9 records were not checked: their expectedPaths were not looked up."
    command = "evalq selfcheck-resolve --evidence FILE --root DIR > resolved.jsonl"
    (note,) = [line for line in ended.stderr.splitlines() if line.startswith("note: ")]
    assert left_out in note
    assert command in note
    report = (tmp_path / "run" / "report.md").read_text()
    assert left_out in report
    assert "; 0 broken records." in report
    assert json.loads((tmp_path / "run" / "report.json").read_text())["results"]["unresolved"] == 9 - resolved


def test_resolved_records_carry_no_notice(tmp_path: Path) -> None:
    """What the command writes is checked to the last record, and nothing is said of paths."""
    (tmp_path / "report.txt").write_text("done")
    given = tmp_path / "claims.jsonl"
    given.write_text('{"testOutput":"3 passed","expectedPaths":["report.txt"]}\n')
    resolving = ["selfcheck-resolve", "--evidence", str(given), "--root", str(tmp_path)]
    written = CliRunner().invoke(cli, resolving)
    given.write_text(written.stdout)
    ended = CliRunner().invoke(cli, ["selfcheck", str(given), "--inline", "--out", str(tmp_path / "run")])
    assert ended.exit_code == 0
    assert "note: " not in ended.stderr
    assert "Goal reached in 1 of 1 records" in (tmp_path / "run" / "report.md").read_text()


def test_a_record_ends_where_its_line_does(tmp_path: Path) -> None:
    """A lone carriage return is white space, by which a record was cut in two; one before a line's end goes."""
    given = tmp_path / "given.jsonl"
    good, broken = b'{"testsPassed": true,\r"testOutput": "x"}', b'{"testsPassed": \rtrue'
    given.write_bytes(good + b"\r\n\n" + broken + b"\r\n" + good)
    lines = resolve_command({"evidence": str(given), "root": str(tmp_path)}).split("\n")
    whole = '{"testsPassed":true,"testOutput":"x"}'
    assert lines == [whole, broken.decode(), whole]


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_record(root: Path, tmp_path: Path) -> None:
    """The evaluation takes such a file, so that its first record has to be looked up, too."""
    given = tmp_path / "evidence.jsonl"
    given.write_bytes(b'\xef\xbb\xbf{"expectedPaths":["src"]}\r\n{"testOutput":"x"}\r\n')
    (command,) = evaluator.command.commands
    first, second = command.call({"evidence": str(given), "root": str(root)}).split("\n")
    assert json.loads(first)["goalVerification"]["passed"] is True
    assert second == '{"testOutput":"x"}'
