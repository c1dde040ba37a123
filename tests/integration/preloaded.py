"""Start evalq's commands as processes of their own that need not import it first.

A server imports evalq once and runs none of it. Each command is a process that it forks: with the folder, environment,
standard streams and session of its own, ended by signals and by its exit code as any other. What decides how an
interpreter starts cannot be had that way: `startable` says when a real one is needed, and tests that look at command
lines, memory or the moment of starting ask for one (`harness.new_interpreters`, or `harness.EVALQ`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

LATE = ("celery.apps.worker", "celery.concurrency.prefork", "celery.worker.components", "pandas", "rich.progress")
"""What evalq's modules import only when it is needed."""
HEAVY = ("evalq.deepeval", "evalq.evalcore.conformance")
"""What no command imports."""
AT_IMPORT = {"worker": {"REMAP_SIGTERM": "SIGQUIT"}}
"""What a command of this kind puts into its environment before it imports what reads it only then."""
_STARTED_WITH = dict(os.environ)
_SHAPES_AN_INTERPRETER = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "OMP_", "OPENBLAS_", "COVERAGE_")
_MESSAGE = 1 << 20


def startable(environment: Mapping[str, str], path: str) -> bool:
    """Whether a forked process behaves as a new interpreter would; ``path`` is a PYTHONPATH that may be added."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        return False
    own, asked = _shaping(_STARTED_WITH), _shaping(environment)
    return asked in (own, own | {"PYTHONPATH": path})


def _shaping(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_SHAPES_AN_INTERPRETER)}


class Preloaded(subprocess.Popen[Any]):
    """A command of evalq that `server(kind)` forks; for its starter it is a process like any other.

    The server is its parent and keeps its exit status until this asks: its number belongs to nobody else before that.
    Of `subprocess.Popen` it takes cwd, env, the standard streams and start_new_session.
    """

    def __init__(self, kind: str, args: Sequence[str], **options: Any) -> None:
        self._server = server(kind)
        super().__init__(args, **options)

    def __del__(self) -> None:
        """Ask nothing: the collector may call this while another question is on the line."""

    def _execute_child(self, args: Any, *given: Any) -> None:
        # executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, then six pipe ends
        cwd, env, ends, new_session = given[4], given[5], given[9:15], given[20]
        streams = [theirs if theirs != -1 else own for own, theirs in enumerate((ends[0], ends[3], ends[5]))]
        order = {"args": list(args), "cwd": os.fspath(cwd), "env": dict(env), "session": bool(new_session)}
        self.pid = self._server.ask({"start": order}, streams)[0]
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]  # CPython's own, in no stub

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if not wait_flags & os.WNOHANG:
            end = select.poll()
            watched = os.pidfd_open(self.pid)
            end.register(watched, select.POLLIN)
            end.poll()
            os.close(watched)
        pid, status = self._server.ask({"wait": self.pid})
        return pid, status

    def _internal_poll(self, *_ignored: Any, **_ignored_too: Any) -> int | None:
        if self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]  # CPython's own, in no stub
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self.returncode = os.waitstatus_to_exitcode(status)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]  # CPython's own, in no stub
        return self.returncode


class _Server:
    """The side that asks."""

    def __init__(self, kind: str) -> None:
        self._asks = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=_STARTED_WITH | {"OPENBLAS_NUM_THREADS": "1"} | AT_IMPORT.get(kind, {}),  # no threads at a fork
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the tests
            )

    def ask(self, what: dict[str, Any], streams: Sequence[int] = ()) -> list[int]:
        with self._asks:
            socket.send_fds(self._line, [json.dumps(what).encode()], list(streams))
            answer = json.loads(self._line.recv(_MESSAGE) or '"the server that forks commands has ended"')
        if isinstance(answer, str):
            raise OSError(answer)
        return list(answer)


@cache
def server(kind: str) -> _Server:
    """The server of a kind. Each has a hash seed of its own: answers of unlike kinds are alike for better reasons."""
    return _Server(kind)


def _import_everything() -> None:
    import evalq

    for module in pkgutil.walk_packages(evalq.__path__, "evalq."):
        if not module.name.startswith(HEAVY):
            import_module(module.name)
    for name in LATE:
        import_module(name)


def _serve(line: socket.socket) -> bool:
    """Fork what is asked for, until nobody can ask any more. In each process that was forked it returns true."""
    while True:
        message, streams, _, _ = socket.recv_fds(line, _MESSAGE, 3)
        if not message:
            return False
        asked = json.loads(message)
        if "wait" in asked:
            line.send(json.dumps(os.waitpid(asked["wait"], os.WNOHANG)).encode())
        elif not os.fork():
            _begin(line, asked["start"], streams)
            return True
        for stream in streams:
            os.close(stream)


def _begin(line: socket.socket, order: dict[str, Any], streams: Sequence[int]) -> None:
    """Answer in the server's place when this process is what was ordered: nobody knows its number before that."""
    try:
        _become(order, streams)
    except OSError as error:
        line.send(json.dumps(str(error)).encode())
        os._exit(1)
    line.send(json.dumps([os.getpid()]).encode())
    line.close()


def _become(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Take the order's session, standard streams, folder, environment, search path and words."""
    if order["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # a text stream here
    os.chdir(order["cwd"])
    tempfile.tempdir = None  # looked up anew, by the variables below
    path = os.environ.get("PYTHONPATH")
    os.environ.clear()
    os.environ.update(order["env"])
    added = "" if os.environ.get("PYTHONPATH") == path else os.environ["PYTHONPATH"]
    sys.path[:1] = [str(Path.cwd()), *(entry for entry in added.split(os.pathsep) if entry)]
    sys.argv = ["evalq", *order["args"]]


def main(number: str) -> None:
    """Import, and serve until the other side closes; in a forked process run its command and end as it ends."""
    _import_everything()
    gc.collect()
    gc.freeze()  # collections in a forked process do not touch, and so copy, what all of them share
    if _serve(socket.socket(fileno=int(number))):
        from evalq.producer import cli

        _end(cli.main())  # whatever it raises goes the interpreter's way


def _end(code: int) -> None:
    """End as an interpreter does, but that it does not take every module to pieces: they are shared."""
    threading._shutdown()  # type: ignore[attr-defined]  # CPython's own, in no stub
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)  # what could not be written is the interpreter's to tell


if __name__ == "__main__":
    main(sys.argv[1])
