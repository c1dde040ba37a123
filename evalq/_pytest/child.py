"""The `evalq` command as started by a session of pytest: it shuts down cleanly when the session ends or is killed.

The session holds the other end of its standard input, and never writes to it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from evalq.producer.cli import main

__all__: list[str] = []


def _end_with_the_session() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # like a cancelled CI job: paid answers are kept, and a run can be resumed


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_session, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
