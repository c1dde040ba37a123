"""A longer run than the test's: rounds of runs with killed workers, then what was asked and not answered, and pictures.

python -m tests.live --rounds 12 --pictures docs/images
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from docs.picture.answers import Source
from docs.picture.page import save
from tests.grafana.pages import PAGES
from tests.live.prometheus import Prometheus
from tests.live.questions import spelled
from tests.live.scene import Scene, playing

_SUITES = ("nightly", "pull-requests")
FOLLOWED = "production"


def main() -> int:
    """Play, compare, draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.live")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each page")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="live-") as folder, playing(Path(folder)) as scene:
        for number in range(chosen.rounds):
            scene.stage.round(_SUITES[number % 3 == 2], kill=number % 2 == 1)
            if number % 3 == 2:
                scene.stage.sweep("live")
            scene.stage.follow(FOLLOWED, 100)
            print(f"round {number + 1} of {chosen.rounds}", file=sys.stderr)
        scene.stage.deadly("nightly")
        scene.settle()
        wrong = scene.wrong_counters()
        silent = scene.silent()
        for line in (*wrong, *silent):
            print(line)
        if chosen.pictures:
            chosen.pictures.mkdir(parents=True, exist_ok=True)
            draw(scene, chosen.pictures)
    return 1 if wrong else 0


def draw(scene: Scene, folder: Path) -> None:
    """A picture of each page, of the whole time that was played."""
    end = time.time()
    server: Prometheus = scene.prometheus
    span = f"{int(end - scene.start)}s"

    def over(expr: str) -> list[object]:
        return list(server.over(spelled(expr, "15s", span), scene.start, end, max(1.0, (end - scene.start) / 240)))

    def now(expr: str) -> list[object]:
        return list(server.now(spelled(expr, "15s", span), end))

    for uid, page in PAGES.items():
        if uid == "evalq-traces":  # whose first choice is the suite that is followed
            page = json.loads(json.dumps(page).replace("$suite", FOLLOWED))
        save(page, Source(now, over), end, folder / f"{uid}.png")  # type: ignore[arg-type]  # see answers.Answered


if __name__ == "__main__":
    sys.exit(main())
