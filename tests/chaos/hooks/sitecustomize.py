"""Kill points in the processes under test, and a witness of what they compute, with no test code in the product.

Python imports a module of this name when it starts. It wraps the functions that its tables name when their modules are
loaded. A call of one in POINTS looks whether its point is armed. A point is armed by a file `<point>@<role>` in the
folder CHAOS_POINTS: the process that renames it has claimed it, and kills itself (or, where the file says so, its
whole process group) at that very place. So a point kills once, exactly where it stands.

A file `hold` there says a number: once so many answers of chunks are there (`HELD`), none is delivered before it says a
higher one, or is gone. So a run is not over before all that is to befall it has.

With ROUNDS_WITNESS each chunk that planagent evaluates is a line of that file: an inline run has no ledger to ask, and
a ledger counts what it was told.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

POINTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    # module: (function, point before it, point after it); "{1}" stands for the second argument
    "evalq.workers.ledger.runs": (
        ("RunLedger.commit", "computed", "committed"),
        ("RunLedger.mark", "", "marked"),
        ("RunLedger.take", "", "taken"),
        ("RunLedger.open", "", "created"),
        ("RunLedger.trim", "synced", "trimmed"),
        ("RunLedger.close", "collected", "closed"),
    ),
    "evalq.producer.run.chunks": (("Collector.finish", "folding", "folded"),),
    "evalq.producer.folder.run_folder": (("RunFolder.write", "writing-{1}", "written-{1}"),),
    "evalq.producer.outputs": (("write_final", "", "finished"),),
    "tests.chaos.naive.tasks": (("deliver", "computed", "committed"),),
}
HELD: dict[str, Callable[..., Any]] = {
    # module and point: how many answers are there, from the arguments of the function that delivers one
    "evalq.workers.ledger.runs: computed": lambda ledger, header, *rest: ledger.client.hget(
        f"evalq:run:{{{header.run}}}:meta", "committed"
    ),
    "tests.chaos.naive.tasks: computed": lambda client, lines: client.get("naive:done"),
}
_FOLDER = os.environ.get("CHAOS_POINTS", "")
_WITNESS = os.environ.get("ROUNDS_WITNESS", "")
_STARTED = os.getpid()


_BROKEN = os.environ.get("CHAOS_BROKEN", "")
"""A module that cannot be imported here."""
_ERRNO = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
_left: int | None = None
"""File system calls until this process kills itself, once it has claimed that."""


def _role() -> str:
    if os.getpid() != _STARTED:
        return "pool"
    for role, word in (("caller", "callers.main"), ("finaliser", "finaliser")):
        if any(word in part for part in sys.orig_argv[1:4]):
            return role
    return "worker" if "worker" in sys.argv else "producer"


def _die_if_armed(point: str) -> None:
    armed = Path(_FOLDER) / f"{point}@{_role()}"
    try:
        _os["rename"](armed, f"{armed}.claimed")
        claimed = Path(f"{armed}.claimed")
    except OSError:
        return
    whole_group = claimed.read_text() == "group"
    _os["rename"](claimed, f"{armed}.fired")
    if whole_group:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _count_down() -> None:
    """Kill this process at the n-th file system call after the file `fs@<role>`, which says n, was claimed."""
    global _left
    if _left is None:
        armed = Path(_FOLDER) / f"fs@{_role()}"
        try:
            _os["rename"](armed, f"{armed}.claimed")
        except OSError:
            return
        _left = int(Path(f"{armed}.claimed").read_text())
    _left -= 1
    if _left <= 0:
        _os["rename"](Path(_FOLDER) / f"fs@{_role()}.claimed", Path(_FOLDER) / f"fs@{_role()}.fired")
        os.kill(os.getpid(), signal.SIGKILL)


def _fail_if_armed() -> None:
    """Fail a sync as the file `fsync@<role>` says, once."""
    armed = Path(_FOLDER) / f"fsync@{_role()}"
    try:
        _os["rename"](armed, f"{armed}.fired")
    except OSError:
        return
    number = _ERRNO[Path(f"{armed}.fired").read_text()]
    raise OSError(number, os.strerror(number))


_os: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate")
}


def _hurt_files() -> None:
    """Have the file system calls of this process die or fail where that is asked for."""

    def hurt(name: str) -> Callable[..., Any]:
        @wraps(_os[name])
        def call(*args: Any, **kwargs: Any) -> Any:
            _count_down()
            if name == "fsync":
                _fail_if_armed()
            return _os[name](*args, **kwargs)

        return call

    for name in _os:
        setattr(os, name, hurt(name))


def _wait_while_held(delivered: Callable[[], Any]) -> None:
    """Until one more answer may be delivered than there are."""
    while True:
        try:
            held = int((Path(_FOLDER) / "hold").read_text())
        except OSError:
            return
        try:
            if int(delivered() or 0) < held:
                return
        except Exception:  # the server is away: whoever delivers finds out
            return
        time.sleep(0.03)


def _wrapped(function: Callable[..., Any], before: str, after: str, module: str) -> Callable[..., Any]:
    delivered = HELD.get(f"{module}: {before}")

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if delivered is not None:
            _wait_while_held(partial(delivered, *args))
        if before:
            _die_if_armed(before.format(*args) if "{" in before else before)
        result = function(*args, **kwargs)
        if after:
            _die_if_armed(after.format(*args) if "{" in after else after)
        return result

    return call


def _told(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(evaluate)
    def call(self: Any, batch: Any, params: Any) -> Any:
        from evalq.evalcore.model.canonical import canonical_json, digest
        from evalq.evalcore.version import code_version

        asked = digest(canonical_json(params.model_dump(mode="json")))
        line = f"{code_version()} {asked} {batch.first_line} {len(batch.data)}\n"
        file = os.open(_WITNESS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line.encode())  # one write: lines of many processes do not mix
        finally:
            os.close(file)
        return evaluate(self, batch, params)

    return call


Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
_wrappers: dict[str, dict[str, Wrapper]] = {}
"""By module and by function: what it is wrapped in here."""
if _FOLDER:
    for module, points in POINTS.items():
        _wrappers[module] = {
            path: partial(_wrapped, before=before, after=after, module=module) for path, before, after in points
        }
if _WITNESS:
    _wrappers["evalq.evalcore.evaluators.planagent.evaluator"] = {"PlanAgent.evaluate": _told}


class _Wrapping(Loader):
    """The real loader, and the wrapping behind it."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        _wrap(module)


def _wrap(module: ModuleType) -> None:
    for path, wrapper in _wrappers[module.__name__].items():
        *outer, name = path.split(".")
        owner: Any = module
        for part in outer:
            owner = getattr(owner, part)
        real = getattr(owner, name)
        wrapped = wrapper(real)
        for holder in (owner, *sys.modules.values()):  # who has imported a function has a name for it, too
            if getattr(holder, name, None) is real:
                setattr(holder, name, wrapped)


def began() -> None:
    """This process begins here: it was forked from one that had imported what is to be wrapped."""
    global _STARTED
    _STARTED = os.getpid()
    for name in [name for name in _wrappers if name in sys.modules]:
        _wrap(sys.modules[name])
        del _wrappers[name]


class _Finder(MetaPathFinder):
    """Finds the modules of the tables where they are, and has them wrapped."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _BROKEN:
            raise ImportError(f"{fullname}: a library it needs is missing on this host")
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _wrappers else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader)
        return spec


if _FOLDER:
    # A run that hangs is asked where: every thread's stack goes to the log.
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    _hurt_files()
if _wrappers:
    sys.meta_path.insert(0, _Finder())
