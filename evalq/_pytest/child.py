"""The `evalq` command as a session of pytest starts it: when that ends, however it does, the command ends in order.

Whoever started it holds the other end of its standard input, and says nothing there.
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
    os.kill(os.getpid(), signal.SIGTERM)  # as a cancelled CI job does: what is paid for is kept, and can be resumed


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_session, daemon=True).start()
    sys.exit(main(sys.argv[1:]))
