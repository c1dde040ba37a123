"""What commands say of a mistake: what it is, and what to do, before anything is computed."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from evalq.evalcore.evaluators.planagent.sample import write_rows
from tests.integration.harness import Server, evalq, start_evalq
from tests.integration.ports import free_port


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A folder with rows.csv."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as out:
        write_rows(out, 60, seed=3)
    return tmp_path


def test_a_ledger_alone_is_refused(rows: Path) -> None:
    """It would be ignored, and the run be computed here."""
    done = evalq("planagent", "rows.csv", "--ledger", f"redis://127.0.0.1:{free_port()}/0", cwd=rows)
    assert (done.returncode, "a ledger needs a broker" in done.stderr) == (2, True), done.stderr
    assert not (rows / "evalq-runs").exists()


def test_a_misspelt_command_is_reported_with_its_like(rows: Path) -> None:
    """Evaluators' names, too; nothing is proposed where nothing is near."""
    for word, near in (("planagnt", "; is it planagent?"), ("staus", "; is it status or pause?"), ("xyzzy", ".")):
        done = evalq(word, "rows.csv", cwd=rows)
        assert done.returncode == 2
        assert done.stderr.endswith(f"Error: No such command '{word}'{near}\n"), done.stderr


def test_a_bad_value_of_the_environment_names_its_variable(rows: Path) -> None:
    """Who gave no such option looks there; one of the command line is the command line's."""
    done = evalq("planagent", "rows.csv", cwd=rows, EVALQ_WORKERS="many")
    assert (done.returncode, "--workers, by the variable EVALQ_WORKERS: 'many'" in done.stderr) == (2, True), (
        done.stderr
    )
    done = evalq("planagent", "rows.csv", "--workers", "few", cwd=rows, EVALQ_WORKERS="many")
    assert (done.returncode, "EVALQ_WORKERS" in done.stderr) == (2, False), done.stderr


def test_errors_that_no_retry_mends_are_said_to_stay(tmp_path: Path) -> None:
    """No call failed, so there is none to make again; and no record has its answer, which is not claimed."""
    (tmp_path / "cases.yaml").write_text("cases: [{id: a, checks: [{rubric: is kind}]}]\n")
    (tmp_path / "outputs.jsonl").write_text('{"case": "a", "output": "x"}\n')
    done = evalq("checks", "cases.yaml", "--outputs", "outputs.jsonl", "--inline", "--out", "run", cwd=tmp_path)
    assert done.returncode == 5, done.stderr
    done = evalq("retry", "run", "--errors", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("there is nothing to retry: its 1 error is in what was read, and stay\n")


def test_parquet_without_pyarrow_is_refused_before_the_run(rows: Path) -> None:
    """Exit 2, what to install, and nothing computed."""
    (rows / "blind").mkdir()
    (rows / "blind" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'pyarrow' else find(name, *rest)\n"
    )
    done = evalq("planagent", "rows.csv", "--inline", "-o", "x.parquet", cwd=rows, PYTHONPATH=str(rows / "blind"))
    assert (done.returncode, "pip install 'evalq[parquet]'" in done.stderr) == (2, True), done.stderr
    assert not (rows / "evalq-runs").exists()


def test_two_plug_ins_of_one_name_end_only_what_needs_them(rows: Path) -> None:
    """They and their packages are named by `doctor` and by their own command; all others work."""
    for number in (1, 2):
        info = rows / "site" / f"rival{number}-{number}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rival{number}\nVersion: {number}\n")
        (info / "entry_points.txt").write_text(f"[evalq.evaluators]\nrival = rival{number}:evaluator\n")
    site = str(rows / "site")
    said = "'rival': rival1:evaluator of rival1 1, rival2:evaluator of rival2 2; uninstall all but one"
    assert (
        evalq("planagent", "rows.csv", "--workers", "1", "--format", "none", cwd=rows, PYTHONPATH=site).returncode == 0
    )
    assert evalq("--help", cwd=rows, PYTHONPATH=site).returncode == 0
    doctor, own = evalq("doctor", cwd=rows, PYTHONPATH=site), evalq("rival", "rows.csv", cwd=rows, PYTHONPATH=site)
    assert (doctor.returncode, said in doctor.stdout) == (3, True), doctor.stdout + doctor.stderr
    assert "ok     evaluator planagent" in doctor.stdout
    assert (own.returncode, said in own.stderr) == (2, True), own.stderr


def test_an_exporter_says_that_its_password_is_wrong(server: Server, rows: Path) -> None:
    """On standard error at the first scrape, once, without the password."""
    server.client.config_set("requirepass", "right")
    url = server.url.replace("://", "://:wrong@")
    exporter = start_evalq("exporter", "--broker", url, "--port", "0", cwd=rows)
    try:
        assert exporter.stderr is not None
        address = exporter.stderr.readline().split()[-1]
        for _ in range(2):
            evalq_up(address)
        said = exporter.stderr.readline()
        assert "refuses this user and password" in said
        assert ":wrong@" not in said
    finally:
        exporter.terminate()
        _, rest = exporter.communicate()
    assert "refuses" not in rest


def evalq_up(address: str) -> None:
    """One scrape, which says that the ledger is not there."""
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - the exporter's own address
        assert re.search(rb"^evalq_ledger_up\{ledger=\"[^\"@]+\"\} 0\.0$", answer.read(), re.MULTILINE)


def test_status_speaks_plainly(server: Server, rows: Path) -> None:
    """No word of the ledger's own stands in what people read."""
    place = ("--broker", server.url)
    begun = evalq("planagent", "rows.csv", *place, "--detach", "--out", "run", cwd=rows)
    assert begun.returncode == 0, begun.stderr
    shown = evalq("status", "run", *place, cwd=rows)
    assert shown.returncode == 0, shown.stderr
    words = {line.partition("  ")[0].split(" ")[0] for line in shown.stdout.splitlines()}
    assert not words & {"sealed", "epoch", "stale", "reconciled", "suspect", "leases", "divergent"}
    assert "planned   yes" in shown.stdout
    assert "resumed   0" in shown.stdout


def test_a_table_for_excel_is_marked(rows: Path) -> None:
    """-o rows.excel.csv is -o rows.csv behind a mark of UTF-8."""
    done = evalq("planagent", "rows.csv", "--inline", "-o", "a.csv", "-o", "a.excel.csv", cwd=rows)
    assert done.returncode == 0, done.stderr
    assert (rows / "a.excel.csv").read_bytes() == b"\xef\xbb\xbf" + (rows / "a.csv").read_bytes()
