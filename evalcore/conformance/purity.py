"""Seeing what a pure function must not call."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

__all__ = ["watched"]

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "sleep")
_BUILTINS: dict[Callable[..., Any], str] = {
    datetime.datetime.now: "datetime.now",
    datetime.datetime.utcnow: "datetime.utcnow",
    datetime.datetime.today: "datetime.today",
    datetime.date.today: "date.today",
    os.urandom: "os.urandom",
    random.random: "the shared random source",
    random.getrandbits: "the shared random source",
}
_ENVIRONMENT: dict[CodeType, str] = {
    method.__code__: "os.environ" for method in vars(type(os.environ)).values() if isinstance(method, FunctionType)
}


def _clock(function: Any) -> str | None:
    """The name of a function of the time module that waits or looks at a clock, which this library never imports."""
    known = getattr(function, "__module__", None) == "time" and function.__name__ in _CLOCKS
    return f"time.{function.__name__}" if known else None


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """Gather the names of clocks, shared random sources and environment look-ups called inside the block.

    They are seen as they are called, whatever name they were imported by. Not seen: calls on other threads, calls
    made by compiled extensions (numpy's generators, an unseeded ``random.Random()``), values that were read when a
    module was imported, and files; `determinism` notices those of them that change the answer from call to call.
    """
    seen: set[str] = set()

    def look(frame: FrameType, event: str, arg: Any) -> None:
        name = None
        if event == "c_call":
            name = _BUILTINS.get(arg) or _clock(arg)
        elif event == "call":
            name = _ENVIRONMENT.get(frame.f_code)
        if name is not None:
            seen.add(name)

    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # what others have called at a collection is not the evaluator's doing
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
