"""What a process does that was forked to be one of evalq's: become it, run it, and fork what evalq starts itself.

A command starts a worker behind a guard; a worker starts its callers, and what finishes runs. A forked process has
spares for them: children forked before it ran anything, that wait to become what it starts. So they have the parent,
the signals and the exit status of anything that it starts. Who starts more than there are spares starts programs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import itertools
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

CLI, BESIDE_PYTEST, IN_A_CROWD = "evalq.producer.cli", "evalq._pytest.child", "tests.chaos.rounds.waiting"
OWN = (CLI, BESIDE_PYTEST, "evalq.workers.callers.main", "evalq.workers.recovery.finaliser")
"""What evalq starts as a program of its own, and takes long to import."""
MESSAGE = 1 << 20
"""Bytes of an order, at most."""
SPARE = "evalq-spare"
"""The name of a process that waits to become something."""
Order = dict[str, Any]
_SHAPES_AN_INTERPRETER = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_", "OMP_", "OPENBLAS_", "COVERAGE_")
_PDEATHSIG, _NAME = 1, 15
_prctl: Any = getattr(ctypes.CDLL(None), "prctl", None)  # Linux has it
_installed, _path = sys.path[1:], os.environ.get("PYTHONPATH")
_numbers = itertools.count()
_spares: list[tuple[int, str]] = []
_PLUGINS = "evalq.evalcore.contract.plugins"


def shaping(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide how an interpreter starts."""
    return {name: value for name, value in environment.items() if name.startswith(_SHAPES_AN_INTERPRETER)}


def live(order: Order, streams: Sequence[int], line: socket.socket) -> None:
    """Follow an order, say so on ``line``, and end. Every process that is forked from here follows its own."""
    while True:
        try:
            _become(order, streams)
        except Exception as error:  # who started it would wait for ever
            line.send(json.dumps(str(error) or repr(error)).encode())
            os._exit(1)
        line.send(json.dumps([os.getpid()]).encode())
        line.close()
        if order.get("guards"):
            _guard(order["guards"])
        given = _keep(_wanted(order))
        if given is None:
            break
        order, streams, line = given
    subprocess.Popen = Started  # type: ignore[misc]  # in this process, which runs nothing but evalq
    _run(order["module"])


def _become(order: Order, streams: Sequence[int]) -> None:
    """Take the order's session, standard streams, folder, environment, search path and words."""
    if order["session"]:
        os.setsid()
    if order["group"]:
        os.setpgid(0, 0)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]  # a text stream here
    os.chdir(order["cwd"])
    tempfile.tempdir = None  # looked up anew, by the variables below
    os.environ.clear()
    os.environ.update(order["env"])
    path = os.environ.get("PYTHONPATH", "")
    added = "" if path == _path else path  # else it is among those that are installed
    here = [] if order["safe"] else [str(Path.cwd())]
    first = [*here, *(entry for entry in added.split(os.pathsep) if entry)]
    sys.path[:] = [*first, *_installed]
    _forget(packages=any(any(Path(entry).glob("*.*-info")) for entry in first))
    sys.argv = ["evalq", *order["args"]]
    sys.orig_argv = [sys.executable, "-m", order["module"], *order["args"]]
    if {"CHAOS_POINTS", "ROUNDS_WITNESS"} & os.environ.keys():  # what an interpreter imports when it starts
        import_module("tests.chaos.hooks.sitecustomize").began()


def _forget(*, packages: bool) -> None:
    """Empty the caches that the server filled with what is another here: the environment, and if so, ``packages``."""
    modules = [sys.modules.get("evalq.workers.tracing"), sys.modules.get(_PLUGINS) if packages else None]
    for cached in (value for module in modules if module for value in vars(module).values()):
        if isinstance(cached, functools._lru_cache_wrapper):
            cached.cache_clear()
    if packages and _PLUGINS in sys.modules:
        sys.modules[_PLUGINS].forget_named()


def _guard(folder: str) -> None:
    """What the guard of `evalq.producer.local.processes` does, of a process that goes on from here."""
    pid = os.fork()
    if not pid:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.close(nothing)
        return
    either = select.poll()
    either.register(0)
    either.register(os.pidfd_open(pid), select.POLLIN)
    if any(number == 0 for number, _ in either.poll()):
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        os.write(1, f"{128 - code if code < 0 else code}\n".encode())
    os.read(0, 1)
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _wanted(order: Order) -> int:
    """How many processes of `OWN` it may well start."""
    words = order["args"]
    if order["module"] not in (CLI, BESIDE_PYTEST, IN_A_CROWD) or "--help" in words or "--inline" in words:
        return 0
    return 2 if words[:1] == ["worker"] else int("--broker" not in words and "EVALQ_BROKER" not in order["env"])


def _keep(count: int) -> tuple[Order, list[int], socket.socket] | None:
    """Fork spares. In this process the answer is None; in one of them, when its time has come, its order."""
    _spares.clear()
    for _ in range(count):
        name = f"\0{SPARE}-{os.getpid()}-{next(_numbers)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(name)
            door.listen(1)
            parent, pid = os.getpid(), os.fork()
            if not pid:
                return _waited(door, parent)
        _spares.append((pid, name))
    return None


def _waited(door: socket.socket, parent: int) -> tuple[Order, list[int], socket.socket]:
    """Wait for the parent's order, and end with it; nothing of its streams is kept open."""
    _prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _prctl(_NAME, SPARE.encode(), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.close(nothing)
    while True:
        line, _ = door.accept()
        asks = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        if asks == parent:
            break
        line.close()
    door.close()
    message, streams, _, _ = socket.recv_fds(line, MESSAGE, 3)
    for number, handler in before.items():
        signal.signal(number, handler)
    order = json.loads(message)
    _prctl(_NAME, order["module"][-15:].encode(), 0, 0, 0)  # all that tells what it is: its words are its parent's
    _prctl(_PDEATHSIG, 0, 0, 0, 0)
    return order, list(streams), line


class Started(subprocess.Popen[Any]):
    """What a forked process starts: a spare that takes its place where that is one of evalq's own programs."""

    def _execute_child(self, args: Any, *given: Any) -> None:
        # executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, then six pipe ends
        cwd, env, ends, new_session = given[4] or Path.cwd(), given[5], given[9:15], given[20]
        env = dict(os.environ if env is None else env)
        order = own_program(args) if shaping(env) == shaping(os.environ) else None
        if order is None or not _spares:
            return super()._execute_child(args, *given)  # type: ignore[misc,no-any-return]  # CPython's own, in no stub
        streams = [theirs if theirs != -1 else own for own, theirs in enumerate((ends[0], ends[3], ends[5]))]
        pid, name = _spares.pop(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
            line.connect(name)
            message = order | {"cwd": os.fspath(cwd), "env": env, "session": bool(new_session), "group": False}
            socket.send_fds(line, [json.dumps(message).encode()], streams)
            answer = json.loads(line.recv(MESSAGE) or '"a spare process has ended"')
        if isinstance(answer, str):
            raise OSError(answer)
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]  # CPython's own, in no stub
        return None


def own_program(args: Any) -> Order | None:
    """What is started by these words; None where it is another program."""
    if isinstance(args, str | bytes | os.PathLike):
        return None
    words, guards = [os.fsdecode(word) for word in args], None
    if words[:2] == ["/bin/sh", "-c"] and words[3:4] == ["evalq-guard"]:
        guards, words = words[4], words[5:]
    if words[:3] != [sys.executable, "-P", "-m"] or words[3] not in OWN:
        return None
    return {"module": words[3], "args": words[4:], "guards": guards, "safe": True}


def _run(module: str) -> None:
    """Run a module as a program, and end as an interpreter does, but that it does not take all modules to pieces."""
    code: Any = 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*found in sys.modules after import of package", RuntimeWarning)
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as exit_:
            code = exit_.code or 0
    if not isinstance(code, int):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # CPython's own, in no stub
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)  # what could not be written is the interpreter's to tell
