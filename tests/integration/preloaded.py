"""Start evalq's commands as processes of their own that need not import it first.

A server imports evalq once, and evaluates one small input of each kind: so patterns are compiled, and installed
packages are known. Each command is a process that it forks: with the folder, environment,
standard streams and session of its own, ended by signals and by its exit code as any other. What decides how an
interpreter starts cannot be had that way: `startable` says when a real one is needed, and tests that look at command
lines, memory or the moment of starting ask for one (`harness.new_interpreters`, or `harness.EVALQ`).

Where several processes run tests (`share`), a server imports for all of them: each gets a fork of it for its own.

`tests.integration.forked` is what such a process does.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.integration.forked import CLI, MESSAGE, live, own_program, shaping

LATE = (
    *("celery.apps.worker", "celery.concurrency.prefork", "celery.worker.components", "celery.worker.autoscale"),
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log", "celery.backends.base"),
    *("celery.worker.strategy", "kombu.pidbox", "billiard.heap", "billiard.popen_fork", "billiard.sharedctypes"),
    *("encodings.idna", "importlib.resources.readers", "multiprocessing.synchronize", "rich.progress"),
)
"""What evalq's modules import only when it is needed."""
HEAVY = (
    *("evalq.deepeval", "evalq.evalcore.evaluators.verification.deepeval"),
    *("evalq.evalcore.conformance", "evalq.pytest", "evalq._pytest"),
)
"""What no command imports."""
AT_IMPORT = {"REMAP_SIGTERM": "SIGQUIT"}
"""What a worker puts into its environment before it imports what reads it only then."""
SAMPLE_RECORDS = 100
"""The records of each evaluator that a server evaluates: enough for most of its patterns."""
TOP = Path(__file__).parents[2]
_STARTED_WITH = dict(os.environ)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as under `nohup`, or where a script waits for nobody
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or the commands under test would ignore Ctrl-C, too


forks = "PYTEST_VERSION" in os.environ
"""Benchmarks, the fault suite and others that are no tests measure commands as users start them."""


def startable(environment: Mapping[str, str], path: str) -> bool:
    """Whether a forked process behaves as a new interpreter would; ``path`` is a PYTHONPATH that may be added."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        return False
    own, asked = shaping(_STARTED_WITH), shaping(environment)
    return asked in (own, own | {"PYTHONPATH": path})


class Preloaded(subprocess.Popen[Any]):
    """A command of evalq that `server(kind)` forks; for its starter it is a process like any other.

    The server is its parent and keeps its exit status until this asks: its number belongs to nobody else before that.
    Of `subprocess.Popen` it takes cwd, env, the standard streams, start_new_session and process_group=0.
    """

    _server: _Server | None = None

    def __init__(
        self, kind: str, args: Sequence[str], *, module: str = CLI, safe: bool = False, **options: Any
    ) -> None:
        self._server = server(kind)
        self._order = {"module": module, "args": list(args), "safe": safe}
        super().__init__(args, **options)

    def __del__(self, *given: Any) -> None:
        """Ask nothing: the collector may call this while another question is on the line."""
        if self._server is None:
            super().__del__(*given)

    def _execute_child(self, args: Any, *given: Any) -> None:
        # executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, then six pipe ends
        cwd, env, ends, new_session = given[4], given[5], given[9:15], given[20]
        if self._server is None:
            return super()._execute_child(args, *given)  # type: ignore[misc,no-any-return]  # CPython's own, in no stub
        streams = [theirs if theirs != -1 else own for own, theirs in enumerate((ends[0], ends[3], ends[5]))]
        order = {"cwd": os.fspath(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        order |= {"session": bool(new_session), "group": given[21] == 0} | self._order
        self.pid = self._server.ask({"start": order}, streams)[0]
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]  # CPython's own, in no stub
        return None

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._server is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc,no-any-return]  # CPython's own, in no stub
        if not wait_flags & os.WNOHANG:
            end = select.poll()
            watched = os.pidfd_open(self.pid)
            end.register(watched, select.POLLIN)
            end.poll()
            os.close(watched)
        pid, status = self._server.ask({"wait": self.pid})
        return pid, status

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._server is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc,no-any-return]  # CPython's own
        if self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]  # CPython's own, in no stub
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]  # CPython's own, in no stub
        return self.returncode


class Beside(Preloaded):
    """What evalq starts in the process of a test: forked, too, where it is one of evalq's own programs."""

    def __init__(self, args: Any, *given: Any, **options: Any) -> None:
        environment = options.get("env") or os.environ
        order = own_program(args) if forks and startable(environment, "") else None
        self._server = None if order is None else server("worker")
        self._order = order or {}
        super(Preloaded, self).__init__(args, *given, **options)


class _Server:
    """The side that asks."""

    def __init__(self, line: socket.socket) -> None:
        self._asks = threading.Lock()
        self._line = line

    def ask(self, what: dict[str, Any], streams: Sequence[int] = ()) -> list[int]:
        with self._asks:
            socket.send_fds(self._line, [json.dumps(what).encode()], list(streams))
            answer = json.loads(self._line.recv(MESSAGE) or '"the server that forks commands has ended"')
        if isinstance(answer, str):
            raise OSError(answer)
        return list(answer)


@cache
def server(kind: str) -> _Server:
    """The server of a kind. Each has a hash seed of its own: answers of unlike kinds are alike for better reasons."""
    name = os.environ.get(_SHARED)
    if name is None:
        return _Server(_start(""))
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line.connect(f"\0{name}-{kind}")
    return _Server(line)


def share() -> None:
    """For the processes that this one starts from here on, which run the tests: import once for all of them."""
    name = f"evalq-preloaded-{os.getpid()}"
    _open.extend(_start(f"{name}-{kind}") for kind in ("worker", "command"))
    os.environ[_SHARED] = name


_SHARED = "PRELOADED_FOR_TESTS"
_open: list[socket.socket] = []
"""Shared servers end when these are closed, with the process that started them."""


def _start(shared_as: str) -> socket.socket:
    """Start a server: one that serves the other end of what is returned or, given a name, whoever calls it by that."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "tests.integration.preloaded", str(theirs.fileno()), shared_as],
            cwd=TOP,
            env=_STARTED_WITH | {"OPENBLAS_NUM_THREADS": "1"} | AT_IMPORT,  # no threads at a fork
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests
        )
    if shared_as:
        ours.recv(1)  # it can be called from here on
    return ours


@cache
def _import_everything() -> None:
    import evalq

    for module in pkgutil.walk_packages(evalq.__path__, "evalq."):
        if not module.name.startswith(HEAVY):
            import_module(module.name)
    for name in LATE:
        import_module(name)
    # A process of its own reads all sources to know which code it is; those that it was forked with are these.
    version: Any = import_module("evalq.evalcore.version")
    version._folders = cache(version._folders)
    version._folders()
    _fill_caches()
    gc.collect()
    gc.freeze()  # collections in a forked process do not touch, and so copy, what all of them share


def _fill_caches() -> None:
    """Do once what each process would do for itself: read what is installed, and compile patterns and tables."""
    import evalq
    from evalq.evalcore.contract import plugins
    from evalq.evalcore.version import code_version

    code_version()
    with tempfile.TemporaryDirectory() as made:
        os.environ["XDG_STATE_HOME"] = made  # in this process alone: orders bring their own environment
        for name in plugins.built_in():
            evaluator = plugins.get(name)
            if evaluator.sample is not None:
                folder = Path(made, name)
                folder.mkdir()
                asked = evaluator.sample.write(folder, SAMPLE_RECORDS, 0)
                options, params = asked.options, asked.params
                evalq.evaluate(name, asked.inputs, options=options, params=params, folder=folder / "run")
    assert threading.active_count() == 1, "a fork would not have the other threads"


def _serve(line: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork what is asked for, until nobody can ask any more. In each process that was forked it returns its order."""
    while True:
        message, streams, _, _ = socket.recv_fds(line, MESSAGE, 3)
        if not message:
            return None
        asked = json.loads(message)
        if "wait" in asked:
            line.send(json.dumps(os.waitpid(asked["wait"], os.WNOHANG)).encode())
        elif not os.fork():
            return asked["start"], list(streams)
        for stream in streams:
            os.close(stream)


def _shared_out(until: socket.socket, name: str) -> socket.socket:
    """In a process of its own for each that calls, the line to the caller; this one ends when ``until`` is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(f"\0{name}")
    door.listen()
    until.send(b"1")
    while True:
        ready, _, _ = select.select([door, until], [], [])
        if until in ready:
            os._exit(0)
        line, _ = door.accept()
        caller = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
        if caller != os.getuid():  # whoever calls can have commands run as this user
            line.close()
            continue
        _import_everything()  # once somebody calls: of many runs of tests nobody ever does
        if not os.fork():
            door.close()
            until.close()
            return line
        line.close()


def main(number: str, name: str) -> None:
    """Import, and serve until the other side closes; in a forked process run its command and end as it ends."""
    line = socket.socket(fileno=int(number))
    if name:
        line = _shared_out(line, name)
    else:
        _import_everything()
    forked = _serve(line)
    if forked is not None:
        live(*forked, line)


if __name__ == "__main__":
    main(*sys.argv[1:])
