"""`python -m tests.chaos.seen.sampler FOLDER NAME=URL...`: scrape observers until SIGTERM, a JSON line a scrape.

A process of its own, since the observers may be on a host of their own (a network namespace).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.seen.observers import OBSERVERS, SCRAPE_SECONDS, Observer

PAUSE_SECONDS = 1.5


def main() -> None:
    """A thread for each observer: one that is slow delays no other."""
    folder, urls = Path(sys.argv[1]), dict(word.split("=", 1) for word in sys.argv[2:])
    for observer in OBSERVERS:
        if observer.name in urls:
            threading.Thread(target=_follow, args=(observer, urls[observer.name], folder), daemon=True).start()
    threading.Event().wait()


def _follow(observer: Observer, url: str, folder: Path) -> None:
    with (folder / f"{observer.name}.jsonl").open("a", buffering=1) as out:
        while True:
            out.write(json.dumps(_scrape(observer, url)) + "\n")
            time.sleep(PAUSE_SECONDS)


def _scrape(observer: Observer, url: str) -> dict[str, Any]:
    line: dict[str, Any] = {"began": time.time()}
    try:
        with httpx.Client(base_url=url, timeout=SCRAPE_SECONDS, trust_env=False) as client:
            line["facts"] = observer.look(client)
    except (httpx.HTTPError, ValueError, KeyError) as error:
        line["error"] = f"{type(error).__name__}: {error}"[:200]
    return line | {"ended": time.time()}


if __name__ == "__main__":
    main()
