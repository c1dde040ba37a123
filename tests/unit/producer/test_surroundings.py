"""What a command is started in: names that are no text, standard streams that are closed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evalq.evalcore.errors import ConfigError, InputError, UsageError
from evalq.evalcore.evaluators.planagent.sample import write_rows
from evalq.evalcore.records.inputs import discover
from evalq.producer.cli import main
from evalq.producer.folder.run_folder import RunFolder
from evalq.producer.monitor.command import ignore_write_errors
from evalq.producer.monitor.progress import Reporter, ShownProgress
from evalq.workers.settings import load_settings

NO_TEXT = os.fsdecode(b"rows\xff.csv")


def test_an_argument_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 and a sentence with the argument as ASCII, where a traceback was; before anything is made."""
    assert main(["planagent", NO_TEXT]) == 2
    message = r"evalq: 'rows\udcff.csv' is not text in UTF-8: rename the file, or set a locale that is UTF-8"
    assert capsys.readouterr().err.strip() == message


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (["planagent", "rows.csv", "--inline"], "EVALQ_SUITE"),
        (["planagent", "rows.csv", "--inline"], "EVALQ_TARGETS"),
        (["list"], "EVALQ_BROKER"),
    ],
)
def test_a_variable_that_is_no_text_is_refused_by_name(
    command: list[str],
    variable: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As an argument is: it ended in a traceback, with 3 for the machinery."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, os.fsdecode(b"redis://h\xff"))
    assert main(command) == 2
    assert capsys.readouterr().err.strip() == rf"evalq: {variable}: 'redis://h\udcff' is not text in UTF-8"
    assert not list(tmp_path.iterdir())


def test_a_setting_that_is_no_text_is_refused_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """By all that reads settings: workers, a notebook, a gate."""
    monkeypatch.setenv("EVALQ_LEDGER", os.fsdecode(b"redis://h\xff"))
    with pytest.raises(ConfigError, match=r"^EVALQ_LEDGER: 'redis://h\\udcff' is not text in UTF-8$"):
        load_settings()


def test_an_input_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    """By a glob, and in a folder: it could be written into no plan and no report."""
    (tmp_path / NO_TEXT).touch()
    for given in (str(tmp_path), str(tmp_path / "*.csv")):
        with pytest.raises(InputError, match=r"udcff\.csv': its name is not text in UTF-8: rename it"):
            discover([given], (".csv",))


def test_a_link_to_what_has_no_text_for_a_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans name what a link leads to."""
    monkeypatch.chdir(tmp_path)
    with Path(NO_TEXT).open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, 2, seed=1)
    Path("link.csv").symlink_to(NO_TEXT)
    assert main(["planagent", "link.csv", "--inline"]) == 2
    assert re.search(r"link\.csv: it leads to '.*udcff\.csv', which is not text in UTF-8", capsys.readouterr().err)
    assert not list(Path("evalq-runs").glob("*"))


def test_a_current_folder_that_is_no_text_is_reported(tmp_path: Path) -> None:
    """run.json says where a run was begun; of what cannot be written down nothing stays."""
    with (
        pytest.raises(UsageError, match="the current folder is not text in UTF-8"),
        RunFolder.begin(tmp_path / "run") as made,
    ):
        made.note(run="r", evaluator="planagent", state="open", started="now", sources=[NO_TEXT])
    assert not list(tmp_path.iterdir())


def test_a_command_without_standard_streams_writes_into_no_file_of_its_own(tmp_path: Path) -> None:
    """Closed by its parent, as some daemons do: their numbers go to none of its files, and the run is as any other."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, 40, seed=1)
    for folder, closed in (("closed", "<&- >&- 2>&-"), ("open", "")):
        command = [sys.executable, "-m", "evalq.producer.cli", "planagent", "rows.csv", "--inline", "--out", folder]
        ended = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command], cwd=tmp_path, capture_output=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
    for name in ("report.json", "records.jsonl"):
        assert (tmp_path / "closed" / name).read_bytes() == (tmp_path / "open" / name).read_bytes()


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["planagent", "rows.csv", "--inline", "-v", "--out", "run", "--format", "none"], 0),
        (["gate", "rows.csv", "--policy", "none.yaml"], 2),
        (["gate", "--nothing"], 2),
        (["list"], 0),
    ],
    ids=["a run", "an error", "usage", "a note"],
)
def test_what_cannot_be_reported_changes_no_exit_code(
    command: list[str], code: int, encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk below standard error, or no reader: a run goes on, and no error ends with 1, which is NO-GO."""
    monkeypatch.chdir(tmp_path)
    with Path("rows.csv").open("w", encoding="utf-8", newline="") as stream:
        write_rows(stream, 2, seed=1)
    with Path("/dev/full").open("w", encoding=encoding) as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        assert main(command) == code


def test_a_bar_on_a_terminal_that_is_gone_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its window was closed, and the shell had disowned the command."""
    near, far = os.openpty()
    with os.fdopen(far, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with ignore_write_errors(), Reporter("records", quiet=False, bar=True, json_lines=False).watching() as watch:
            watch(ShownProgress(1, 1, 2))
            os.close(near)
            watch(ShownProgress(2, 2, 2))
        assert sys.stderr is terminal
        os.dup2(os.open(os.devnull, os.O_WRONLY), far)  # what is left for it is written somewhere


_AT_AN_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from evalq.producer.entry import main
sys.argv = ["evalq", "--version"]
sys.exit(main())
"""


@pytest.mark.parametrize("ignored", [False, True], ids=["as usual", "where it is ignored"])
def test_an_interrupt_while_the_program_is_imported_ends_it_in_silence(ignored: bool) -> None:
    """No traceback of whatever import was under way; a shell sees 130. Under nohup it goes on."""
    given = ["-c", _AT_AN_IMPORT]
    if ignored:
        given[1] = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + given[1]
    ended = subprocess.run([sys.executable, *given], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0 if ignored else -signal.SIGINT, b"")


@pytest.mark.parametrize("lacking", ["click", "redis"])
def test_a_package_that_is_missing_is_no_answer_of_a_policy(tmp_path: Path, lacking: str) -> None:
    """Exit 3 and a sentence that names it, whether no command can begin without it or none can end; 1 is NO-GO."""
    given = f"import sys; sys.modules['{lacking}'] = None\nfrom evalq.producer.entry import main\nsys.exit(main())"
    asked = ["status", "--broker", "redis://127.0.0.1:1/0"]
    ended = subprocess.run(
        [sys.executable, "-c", given, *asked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 3, ended.stderr
    assert ended.stderr.startswith("evalq: the installation is incomplete (")
    assert lacking in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
