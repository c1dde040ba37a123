"""What a pool process tells the worker's main process of a chunk, and what the worker's log says of it."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import re
import resource
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import RestartFreqExceeded, WorkerLostError
from celery.app.trace import build_tracer
from celery.exceptions import CPendingDeprecationWarning
from celery.worker import state

from evalq.evalcore.errors import ConfigError
from evalq.workers.broker.message import TASK
from evalq.workers.pool import main
from evalq.workers.processes.identity import log_to_stderr
from evalq.workers.servers.connections import AGAIN_SECONDS
from evalq.workers.settings import Settings

PIPE_BUF = 4096
"""Bytes that a pipe takes at once or not at all (POSIX, limits.h; Linux)."""


def test_an_answer_is_never_read_by_half(caplog: pytest.LogCaptureFixture) -> None:
    """Without a server no chunk can be computed; what is sent of that fits into one write, and the log has the reason.

    Celery's main process forgets what it has read of an answer when it loses the broker, and ends on the rest of it.
    """
    app = main._app(Settings(broker="redis://127.0.0.1:1/0"), "w", alone=False)
    task = app.tasks[TASK]
    request = {"id": "1", "task": TASK, "delivery_info": {}, "hostname": "w"}
    before = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        with caplog.at_level(logging.ERROR):
            answer = build_tracer(TASK, task, app=app)("1", ["vs-0123", 7, 1], {}, request)
    finally:  # the task bounds the memory of its process, in which other tests follow
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert len(pickle.dumps(answer.retval)) < PIPE_BUF
    (record,) = caplog.records
    main.without_traceback(record)
    assert record.exc_info is None
    assert record.getMessage().startswith("chunk 7 of run vs-0123 is left for later (no server answers at redis://127")


def test_a_pool_process_that_was_killed_is_one_line_of_the_log() -> None:
    """billiard wraps its error, with the traceback of its own code in it: that says nothing of the record."""
    try:
        raise WorkerLostError("Worker exited prematurely: signal 9 (SIGKILL) Job: 2.")
    except WorkerLostError:
        info = ExceptionInfo()
    record = logging.LogRecord("celery.worker.request", logging.ERROR, __file__, 1, "it died", (), info.exc_info)
    main.without_traceback(record)
    assert logging.Formatter().format(record) == "it died"


def test_a_folder_whose_name_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat tells the folders: with a path that has no form in UTF-8 it ended the worker in a traceback."""
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"a root .* is not text in UTF-8"):
        main.run_worker(Settings(roots=(folder,)))
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="of the current folder is not text in UTF-8"):
        main.run_worker(Settings())


def test_a_lost_broker_makes_no_celery_s_advice_a_part_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery has its warnings shown when it makes its worker, and with each loss of the broker it told of a default."""
    settings = Settings(broker="redis://127.0.0.1:1/0", concurrency=1)
    monkeypatch.setattr(logging, "captureWarnings", lambda capture: None)  # it would keep them from being recorded
    monkeypatch.setenv("CELERY_LOG_LEVEL", "")
    monkeypatch.setenv("CELERY_LOG_FILE", "")
    with warnings.catch_warnings(record=True) as shown:
        main._worker(main._app(settings, "w", alone=False), settings, "w", "WARNING")
        warnings.warn("a default to come", CPendingDeprecationWarning, stacklevel=1)
    assert "a default to come" not in [str(warning.message) for warning in shown]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EAGAIN])
def test_a_worker_that_may_not_have_its_processes_says_which_limit_to_raise(number: int) -> None:
    """One line instead of Celery's traceback, and no policy's exit code; what a chunk raises keeps its traceback."""
    try:
        raise OSError(number, os.strerror(number))
    except OSError as error:
        info = (type(error), error, error.__traceback__)
    records = [
        logging.LogRecord(name, logging.CRITICAL, __file__, 1, "Unrecoverable error", (), info)
        for name in ("celery.worker", "evalq.worker")
    ]
    assert all(map(main.without_traceback, records))
    first, other = (logging.Formatter().format(record) for record in records)
    assert first.startswith("Unrecoverable error; raise the limits on open files and processes (ulimit")
    assert "Traceback" not in first
    assert "Traceback" in other
    assert [main._exit_code(SimpleNamespace(exitcode=code)) for code in (0, 1, 70)] == [0, 3, 70]


def test_a_worker_that_gives_up_for_want_of_files_ends_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery's consumer then ends without a code, as at SIGTERM: exit 3, and the log says what to raise."""
    record = logging.LogRecord(
        "celery.worker.consumer.consumer", logging.CRITICAL, __file__, 1, "Too many open files. Aborting...", (), None
    )
    assert main.Reconnecting()(record)
    assert main.without_traceback(record)
    assert "raise the limits on open files" in record.getMessage()
    assert main._exit_code(SimpleNamespace(exitcode=None)) == 3
    monkeypatch.setattr(state, "should_terminate", 0)  # as SIGTERM's handler does
    assert main._exit_code(SimpleNamespace(exitcode=None)) == 0


def _of_celery(text: str, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("celery.worker.consumer.consumer", logging.ERROR, __file__, 1, text, (), info)


def test_a_server_that_is_tried_again_and_again_is_reported_every_half_minute() -> None:
    """In one line each; what is no connection's, and what is said for the first time, is never kept back."""
    now = [100.0]
    shown = main.Reconnecting(lambda: now[0])
    refused = "consumer: Cannot connect to x: a replica.\nTrying to reconnect...\n"
    first = _of_celery(refused)
    assert shown(first)
    assert first.getMessage() == "consumer: Cannot connect to x: a replica. Trying to reconnect..."
    assert not shown(_of_celery("Frequent restarts detected", RestartFreqExceeded("5 in 1s")))
    now[0] += AGAIN_SECONDS - 1
    assert not shown(_of_celery(refused))
    assert shown(_of_celery("consumer: Cannot connect to x: it loads its data.\nTrying to reconnect...\n"))
    now[0] += 1
    assert shown(_of_celery(refused))
    assert not shown(_of_celery(refused))
    other = logging.LogRecord("evalq.worker", logging.WARNING, __file__, 1, "twice\n", (), None)
    assert shown(other)
    assert shown(other)
    assert other.getMessage() == "twice\n"


def test_another_error_behind_the_same_words_is_reported_at_once() -> None:
    """Celery says "connection lost" of a server that is away and of one that refuses the password alike."""
    shown, lost = main.Reconnecting(lambda: 1.0), "consumer: Connection to broker lost. Trying again..."
    assert shown(_of_celery(lost, ConnectionRefusedError("refused")))
    assert not shown(_of_celery(lost, ConnectionRefusedError("refused")))
    assert shown(_of_celery(lost, PermissionError("WRONGPASS")))
    assert not shown(_of_celery(lost, PermissionError("WRONGPASS")))


def test_a_log_prints_errors_of_users_bounded_and_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a build service nor a terminal obeys what an error holds, and no line of it looks like evalq's own."""
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers = []
    try:
        log_to_stderr()
        try:
            raise ValueError(
                "\x1b[31m\n::set-output name=x::y\n##[group]z\n2026-01-01 ERROR evalq: forged\n" + "w" * 50_000
            )
        except ValueError:
            logging.getLogger("evalq.worker").exception("chunk %s failed", 7)
    finally:
        root.handlers = before
    shown = capsys.readouterr().err
    lines = shown.splitlines()
    assert lines[0].endswith("ERROR evalq.worker: chunk 7 failed")
    assert [line for line in lines[1:] if not line.startswith("  ")] == []
    assert not re.search(r"\x1b|^\s*::|##\[", shown, re.MULTILINE)
    assert "characters are left out" in shown
    assert "forged" in shown
    assert len(shown) < 5_000
