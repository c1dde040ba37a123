"""What a machine has too little of, where Python says so by no class of its own."""

from __future__ import annotations

__all__ = ["lacking"]


def lacking(error: BaseException) -> str:
    """What this machine has too little of, and what to do about it, where an error says only that; else empty."""
    if isinstance(error, MemoryError):
        return "there is no memory left; raise its limit (ulimit -v, or the container's)"
    # Python has no class for it.
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "no thread can be started; raise the limits on processes and memory (ulimit, or the container's)"
    return ""
