"""Where the program `evalq` begins: ready for Ctrl-C before it imports what it is made of."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command of this process's arguments; returns its exit code."""
    # Importing takes a tenth of a second and more. Nothing is begun by then that would have to end in order, and
    # Python's own answer would be a traceback of whatever import was under way.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as under nohup
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from evalq.producer.cli import main as run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except ImportError as error:  # commands answer for their own; this is of what telling any error takes
        told = f"evalq: the installation is not whole ({error}): install evalq anew, with what it needs"
        sys.stderr.write(f"{told}\n")
        return 3  # Python's own 1 would be a policy's answer
