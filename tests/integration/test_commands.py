"""Each command does what its help says."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click
import pandas as pd
import pytest
import yaml

from evalq.evalcore.contract import plugins
from evalq.producer import commands
from evalq.producer.cli import cli
from tests.integration.conftest import Calm
from tests.integration.harness import (
    PATIENCE,
    Fleet,
    Server,
    clean_environment,
    evalq,
    info,
    launch,
    same_answer,
    wait_until,
)
from tests.samples import sampled

FINAL = {"manifest.json", "records.jsonl", "report.html", "report.json", "report.md", "results.yaml", "run.json"}


def test_help_imports_nothing_heavy() -> None:
    """The list of commands comes without Celery, pandas, numpy, pydantic or redis."""
    code = "import sys; from evalq.producer.cli import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "planagent" in done.stdout
    modules = done.stdout.splitlines()[-1]
    for heavy in ("celery", "pandas", "jinja2", "numpy", "pydantic", "redis", "yaml"):
        assert f"'{heavy}'" not in modules


@pytest.mark.parametrize("command", [*plugins.built_in(), "worker", "resume"])
def test_every_command_explains_itself(tmp_path: Path, command: str) -> None:
    """--help of each command works and names its options."""
    done = evalq(command, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--broker" in done.stdout


def test_the_list_of_commands_and_their_help_say_the_same() -> None:
    """Every module of the folder is a command that is called like it, and whose help begins as the list says."""
    assert {"run", "demo", "list", "status", "watch", "worker", "doctor"} < set(commands.names())
    assert len(commands.names()) == len(set(commands.names()))
    for name in commands.names():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.name == name
        assert (command.help or "").partition("\n")[0] == commands.summary(name)
        assert commands.summary(name).endswith(".")


def test_a_run_folder_holds_the_promised_files_and_no_others(data: Path, tmp_path: Path) -> None:
    """After a run: the final files, no working files, and no clock or host in what is compared."""
    done = evalq("planagent", "small.csv", "--inline", "--out", tmp_path / "run", "--tag", "commit=abc", cwd=data)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} == FINAL
    report = json.loads((tmp_path / "run" / "report.json").read_bytes())
    assert report["schema"] == "evalq.report/1"
    assert list(report) == sorted(report)
    assert info(tmp_path / "run")["tags"] == {"commit": "abc"}
    assert done.stdout.encode() == (tmp_path / "run" / "report.md").read_bytes()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_bytes())
    assert manifest["seal"]["chunks"] == len(manifest["chunks"])


@pytest.mark.parametrize("fmt", ["json", "yaml", "none"])
def test_standard_output_carries_the_asked_form(data: Path, tmp_path: Path, fmt: str) -> None:
    """--format json is report.json itself; none is silence."""
    done = evalq("planagent", "small.csv", "--inline", "--out", tmp_path / "run", "--format", fmt, "-q", cwd=data)
    if fmt == "none":
        assert done.stdout == ""
    else:
        read = json.loads if fmt == "json" else yaml.safe_load
        assert read(done.stdout) == json.loads((tmp_path / "run" / "report.json").read_bytes())
    assert done.stderr == ""


def test_records_as_tables(data: Path, tmp_path: Path) -> None:
    """-o writes CSV and Parquet of the records; both say what records.jsonl says, row by row."""
    outputs = [tmp_path / f"rows.{kind}" for kind in ("csv", "parquet", "jsonl", "yaml", "md", "json")]
    flags = [word for path in outputs for word in ("-o", str(path))]
    done = evalq("planagent", "small.csv", "--inline", "--out", tmp_path / "run", *flags, cwd=data)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    table, parquet = pd.read_csv(outputs[0], dtype={"id": str}), pd.read_parquet(outputs[1])
    for frame in (table, parquet):
        assert frame["record"].tolist() == [record["record"] for record in records]
        scores = [None if pd.isna(score) else int(score) for score in frame["score"]]
        assert scores == [record.get("score") for record in records]
        assert [json.loads(text) for text in frame["checks"]] == [record["checks"] for record in records]
    assert outputs[2].read_bytes() == (tmp_path / "run" / "records.jsonl").read_bytes()
    assert outputs[5].read_bytes() == (tmp_path / "run" / "report.json").read_bytes()


def test_a_table_runs_no_formula(tmp_path: Path) -> None:
    """A cell that a spreadsheet would compute is written as text."""
    header = "Run ID,Item ID,Query ID,질의,기대결과,카테고리,방/반복,오류,LLM 상태,LLM 점수,LLM 코멘트,Raw JSON\n"
    expected = '"assistantMessage에 ""sum""과 관련된 내용이 언급되어 있는가"'  # a check, so that there is a result
    answer = '"{""assistantMessage"": ""the sum""}"'
    (tmp_path / "x.csv").write_text(f"{header}r,i,=1+1,ask,{expected},c,1/1,,,,,{answer}\n")
    done = evalq("planagent", "x.csv", "--inline", "-o", "out.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert ",'=1+1," in (tmp_path / "out.csv").read_text()


def test_standard_input(data: Path, calm: Calm, tmp_path: Path) -> None:
    """ "-" is standard input, through workers; records and numbers are the file's."""
    command = ("planagent", "-", "--out", tmp_path / "run", "--format", "none")
    with (data / "small.csv").open("rb") as stream:
        process = launch(command, stdin=stream, cwd=tmp_path, env=clean_environment())
    assert process.wait(timeout=PATIENCE) == 0
    mine, reference = (json.loads((p / "report.json").read_bytes()) for p in (tmp_path / "run", calm("small.csv")))
    assert mine["results"] == reference["results"]
    assert mine["inputs"][0]["name"] == "stdin"


@pytest.mark.parametrize("how", [("--inline",), ("--workers", "1")], ids=["inline", "workers"])
def test_a_run_without_a_single_result_has_evaluated_nothing(tmp_path: Path, how: tuple[str, ...]) -> None:
    """Every output an error: exit 5 and why, with the report that lists them; never a silent pass."""
    request = sampled("vs", tmp_path, 30)
    lines = [{"case": f"FULL-0{n}", "repeat": 0, "error": "timeout"} for n in range(1, 4)]
    (tmp_path / "lost.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = evalq("vs", *request.inputs, "--outputs", "lost.jsonl", "--out", "run", *how, cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    assert "nothing was evaluated: none of 3 records has a result (3 errors)" in done.stderr
    run = json.loads((tmp_path / "run" / "report.json").read_text())["results"]
    assert (run["test_run"]["errors"], run["pass_rate"], run["cases"]["answered"]) == (30, None, 0)
    assert "0 of 30 cases answered" in done.stdout
    again = evalq("resume", "run", cwd=tmp_path)
    assert "this run is done" in again.stderr
    shown, watched = evalq("report", "run", cwd=tmp_path), evalq("watch", "run", "--json", cwd=tmp_path)
    assert (shown.returncode, watched.returncode) == (5, 5), "whoever shows it again ends the same way"
    assert shown.stdout == (tmp_path / "run" / "report.md").read_text()
    last = json.loads(watched.stdout.splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("error", 5)


def test_vs_shows_the_specified_result_document_as_json(tmp_path: Path) -> None:
    """As a CI job reads it: test_run at the top with its timestamp, levels from full to light."""
    request = sampled("vs", tmp_path, 60)
    args = (*request.inputs, "--outputs", *request.options["outputs"], "--all", "--format", "json")
    done = evalq("vs", *args, "--inline", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert next(iter(document)) == "test_run"
    assert list(document["test_run"])[:2] == ["timestamp", "total_tests"]
    assert datetime.fromisoformat(document["test_run"]["timestamp"]).tzinfo is not None
    assert list(document["test_run"]["summary"]) == ["full_vs", "enhanced_vs", "light_vs"]


def test_vs_keeps_the_specified_result_document(tmp_path: Path) -> None:
    """results.yaml of a vs run: test_run first of all with its timestamp, then the counts, in that order."""
    request = sampled("vs", tmp_path, 60)
    done = evalq(
        "vs", *request.inputs, "--outputs", *request.options["outputs"], "--inline", "--out", "run", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load((tmp_path / "run" / "results.yaml").read_text())
    assert next(iter(document)) == "test_run"
    assert list(document["test_run"])[:2] == ["timestamp", "total_tests"]
    assert document["test_run"]["timestamp"] == info(tmp_path / "run")["started"]


def test_a_limit_and_a_dry_run(data: Path, tmp_path: Path) -> None:
    """--limit evaluates the first records only; --dry-run says what there is and leaves nothing behind."""
    done = evalq("planagent", "small.csv", "--inline", "--limit", "7", "--out", tmp_path / "run", cwd=data)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "report.json").read_bytes())["records"]["total"] == 7
    done = evalq("planagent", data / "small.csv", "--dry-run", cwd=tmp_path)
    assert done.stdout == "1 input, 2000 rows, 2 chunks\n"
    assert not (tmp_path / "evalq-runs").exists()


def test_json_lines_tell_the_whole_story(data: Path, tmp_path: Path) -> None:
    """--json: launch, progress (and what it waits for) and done, one JSON object a line, and an error as one too."""
    done = evalq("planagent", "small.csv", "--json", "--out", tmp_path / "run", cwd=data)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "launch"
    assert events[-1]["event"] == "done"
    assert {event["event"] for event in events[1:-1]} <= {"progress", "waiting"}
    done = evalq("planagent", "nowhere.csv", "--json", cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1])["exit_code"] == done.returncode == 2


def test_verbose_says_what_it_took(data: Path, tmp_path: Path) -> None:
    """-v adds what was planned and computed; without it standard error names the run, a slow start, and
    what numbers leave out.
    """
    args = ("planagent", "small.csv", "--workers", "1", "--chunk-size", "500", "--format", "none")
    done = evalq(*args, "-v", "--out", tmp_path / "one", cwd=data)
    assert "1 input, " in done.stderr
    assert "4 chunks, 4 computed, 0 duplicates" in done.stderr
    done = evalq(*args, "--out", tmp_path / "other", cwd=data)
    quiet = ("waiting: the local worker is starting", "note: left out: ", "next: ")
    told = [line for line in done.stderr.splitlines() if not line.startswith(quiet)]
    assert told == [f"run {info(tmp_path / 'other')['run']}: {tmp_path / 'other'}"]


def test_a_terminal_sees_a_bar(data: Path, tmp_path: Path) -> None:
    """On a terminal standard error carries a progress bar; elsewhere it does not."""
    main, terminal = pty.openpty()
    command = ("planagent", "rows.csv", "--out", tmp_path / "run", "--format", "none")
    process = launch(command, cwd=data, env=clean_environment(TERM="xterm"), stderr=terminal)
    os.close(terminal)
    seen = b""
    try:
        while data_seen := os.read(main, 65536):
            seen += data_seen
    except OSError:
        pass
    assert process.wait() == 0
    assert b"rows, " in seen
    assert b"%" in seen


def test_detach_then_watch(server: Server, fleet: Fleet, data: Path, calm: Calm, tmp_path: Path) -> None:
    """--detach prints the run id and leaves; the workers go on alone, and watch gives the same report."""
    args = ("planagent", "mid.csv", "--broker", server.url, "--chunk-size", "50", "--out", tmp_path / "run")
    done = evalq(*args, "--detach", cwd=data, EVALQ_WINDOW="8")
    assert done.returncode == 0, done.stderr
    run = done.stdout.strip()
    assert info(tmp_path / "run")["state"] == "detached"
    fleet.add(2)
    meta = f"evalq:run:{{{run}}}:meta"
    wait_until(lambda: server.client.hget(meta, "committed") == b"160", "the workers did it all")
    done = evalq("watch", tmp_path / "run", "--broker", server.url, "--format", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    same_answer(calm("mid.csv"), tmp_path / "run")
    assert info(tmp_path / "run")["progress"]["computed"] == 160


def test_the_same_key_is_one_run(data: Path, tmp_path: Path) -> None:
    """--once: the same key and input again is the first run, shown again; another input is another run."""
    args = ("planagent", data / "small.csv", "--inline", "--once", "abc123", "--format", "json")
    first, second = (evalq(*args, cwd=tmp_path) for _ in range(2))
    assert first.returncode == second.returncode == 0, second.stderr
    assert first.stdout == second.stdout
    assert len(list((tmp_path / "evalq-runs").iterdir())) == 1
    evalq("planagent", data / "mid.csv", "--inline", "--once", "abc123", "--limit", "10", cwd=tmp_path)
    assert len(list((tmp_path / "evalq-runs").iterdir())) == 2


def test_report_again(data: Path, tmp_path: Path) -> None:
    """`report` shows a finished run again, in any form, in the language it was asked for."""
    done = evalq("planagent", data / "small.csv", "--inline", "--lang", "en", cwd=tmp_path)
    again = evalq("report", "-o", "again.csv", cwd=tmp_path)
    assert again.stdout == done.stdout
    assert "Intent" in again.stdout
    assert (tmp_path / "again.csv").exists()


def test_list_and_status_without_a_server(data: Path, tmp_path: Path) -> None:
    """Finished runs are listed from their folders; status is that of the latest."""
    evalq("planagent", data / "small.csv", "--inline", "--suite", "nightly", cwd=tmp_path)
    run = next((tmp_path / "evalq-runs").iterdir()).name
    (row,) = evalq("list", cwd=tmp_path).stdout.splitlines()
    total = json.loads((tmp_path / "evalq-runs" / run / "report.json").read_text())["records"]["total"]
    assert row.split()[:5] == [run, "done", "planagent", "nightly", str(total)]
    assert re.fullmatch(r"planagent-small-\d{4}-\d{4}-[a-z0-9]{6}", run)
    facts = json.loads((tmp_path / "evalq-runs" / run / "run.json").read_text())
    assert re.search(rf"  {re.escape(facts['result'])}, \d+ s$", row), row
    (tmp_path / "empty").mkdir()
    empty = evalq("list", cwd=tmp_path / "empty")
    assert (empty.returncode, empty.stdout, empty.stderr) == (
        0,
        "",
        "there is no run in ./evalq-runs or beside it\nnext: make first cases and a target: evalq init\n",
    )
    assert json.loads(evalq("list", "--json", cwd=tmp_path).stdout)[0]["suite"] == "nightly"
    done = evalq("status", cwd=tmp_path)
    assert run in done.stdout
    assert "done" in done.stdout


def test_every_flag_has_a_variable(data: Path, tmp_path: Path) -> None:
    """EVALQ_LIMIT, EVALQ_INLINE and the evaluator's own EVALQ_LANG stand for their flags."""
    done = evalq("planagent", data / "small.csv", cwd=tmp_path, EVALQ_LIMIT="5", EVALQ_LANG="en", EVALQ_INLINE="1")
    assert done.returncode == 0, done.stderr
    assert "Intent" in done.stdout


def test_doctor_here_and_there(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """Without a broker doctor is content here; with one it misses workers until there is one."""
    done = evalq("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    done = evalq("doctor", "--ledger", server.url, cwd=tmp_path)
    assert (done.returncode, "a ledger needs a broker" in done.stderr) == (2, True)
    done = evalq("doctor", "--broker", server.url, cwd=tmp_path)
    assert done.returncode == 3
    assert "0 workers of this code" in done.stdout
    fleet.add(1)
    wait_until(lambda: server.client.keys("evalq:worker:*"), "the worker is there")
    done = evalq("doctor", "--broker", server.url, cwd=tmp_path)
    assert "1 worker of this code" in done.stdout
    assert done.returncode == 0


def test_damaged_packing(tmp_path: Path) -> None:
    """A truncated .gz is an input error with its name, and nothing is left."""
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n" * 1000)[:-20])
    done = evalq("planagent", "x.csv.gz", cwd=tmp_path)
    assert done.returncode == 2
    assert "x.csv.gz" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv.gz"]
