"""The entry point of `evalq`: it handles Ctrl-C before it imports the rest."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> int:
    """Run the command of this process's arguments; returns its exit code."""
    # Imports take a tenth of a second or more. Until they are done Ctrl-C may kill the process, since there is nothing
    # to clean up, and Python would print a traceback of some import.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # otherwise SIGINT is ignored, as under nohup
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from evalq.evalcore.model.canonical import collect_as_command
        from evalq.producer.cli import main as run

        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        collect_as_command()
        try:
            return run()
        finally:
            gc.freeze()  # else Python looks through all that is left once more, which takes a second of 100,000 cases
    except ImportError as error:  # commands handle their own; this one is in what every error message needs
        text = f"evalq: the installation is incomplete ({error}): install evalq again, with its dependencies"
        sys.stderr.write(f"{text}\n")
        return 3  # Python's own 1 would mean NO-GO
