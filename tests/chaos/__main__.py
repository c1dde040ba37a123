"""`python -m tests.chaos --seeds 20`: run seeds, add a line for each to a file, and say how to repeat what failed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.chaos.battle import STOP, fight
from tests.chaos.faults import FAULTS
from tests.chaos.scenario import FAILOVERS, NAIVE, draw, failovers
from tests.chaos.subjects import Workshop
from tests.chaos.sweeps import SWEEPS

FAILOVER_SCALE = 2.0
"""Inputs so much larger, so that there is time for failovers."""
OUT = Path(__file__).parents[2] / "docs" / "reference" / "chaos.jsonl"


def main() -> int:
    """Exit 1 when a seed of evalq's went wrong."""
    asked = _parse()
    first = _next_seed(asked) if asked.first_seed is None else asked.first_seed
    seeds = range(first, first + asked.seeds)
    setups = ("early", "late") if asked.naive else ("",)
    if asked.failovers:
        scenarios = [failovers(seed, asked.failovers, asked.subject) for seed in seeds]
    else:
        scenarios = [draw(seed, asked.only, naive, asked.sweep) for naive in setups for seed in seeds]
    if asked.guests:
        # Their workers make no live calls.
        scenarios = [replace(each, guests=True) for each in scenarios if each.evaluation not in SWEEPS]
    bad = 0
    with (
        tempfile.TemporaryDirectory(prefix="evalq-chaos-inputs-") as inputs,
        ThreadPoolExecutor(asked.parallel) as pool,
    ):
        workshop = Workshop(Path(inputs), FAILOVER_SCALE if asked.failovers else 1.0)
        signal.signal(signal.SIGTERM, lambda *_: _end(pool))
        signal.signal(signal.SIGINT, lambda *_: _end(pool))
        for line in pool.map(lambda scenario: fight(scenario, workshop), scenarios):
            with asked.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps({key: value for key, value in line.items() if key != "folder"}) + "\n")
            good = line["equal"] and not (line["lost"] or line["doubled"] or line["divergent"])
            bad += not good
            print(_told(line, asked, good=good), flush=True)
    print(f"{len(scenarios)} runs, {len(scenarios) - bad} equal, lines added to {asked.out}")
    return 1 if bad and not asked.naive else 0


def _end(pool: ThreadPoolExecutor) -> None:
    """Stop at once, and leave no process behind."""
    STOP.set()
    pool.shutdown(wait=True, cancel_futures=True)
    sys.exit(130)


def _parse() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first-seed", type=int, help="default: the first that the results file does not have")
    parser.add_argument("--out", type=Path, default=OUT, help="results, a JSON line a run")
    parser.add_argument(
        "--only", default="", choices=["", *FAULTS], metavar="FAULT", help=f"one of: {', '.join(FAULTS)}"
    )
    parser.add_argument(
        "--sweep", default="", choices=list(SWEEPS), metavar="KIND", help=f"one of: {', '.join(SWEEPS)}"
    )
    parser.add_argument("--failovers", type=int, default=0, metavar="N", help="N in each run, and no other fault")
    parser.add_argument("--subject", choices=list(FAILOVERS), default="sweep", help="of --failovers")
    parser.add_argument("--parallel", type=int, default=1, metavar="K", help="runs side by side")
    parser.add_argument("--naive", action="store_true", help="the negative control, both its forms, instead of evalq")
    parser.add_argument(
        "--guests",
        action="store_true",
        help="in another application's workers; give --out and --first-seed",
    )
    asked = parser.parse_args()
    if asked.failovers:
        asked.only = failovers(0, asked.failovers, asked.subject).only
    return asked


def _next_seed(asked: Any) -> int:
    """Behind all seeds of the results file that were run of the same kind."""
    lines = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    only = asked.only or asked.sweep
    same = [line for line in lines if line["only"] == only and (line["setup"] != NAIVE[""]) == asked.naive]
    return max((line["seed"] + 1 for line in same), default=0)


def _told(line: dict[str, Any], asked: Any, *, good: bool) -> str:
    recovered = ", ".join(f"{one['fault']} {one['seconds']}/{one['held']}" for one in line["recoveries"])
    mark = "ok  " if good else "HARM" if asked.naive else "BAD "
    head = f"seed {line['seed']} {line['setup']} {line['evaluation']} [{line['fleet']}; {line['server']}]"
    text = f"{mark} {head} {line['seconds']} s: {recovered or 'no fault struck'}"
    if "skipped" in line:
        text += f"\n     skipped: {line['skipped']}"
    if not good:
        only = f" --only '{asked.only}'" if asked.only else ""
        only += f" --sweep '{asked.sweep}'" if asked.sweep else ""
        only = f" --failovers {asked.failovers} --subject {asked.subject}" if asked.failovers else only
        naive = " --naive" if asked.naive else ""
        text += f"\n     {line.get('why', '')}\n     drawn: {line['drawn']}"
        text += f"\n     kept: {line['folder']}" if "folder" in line else ""
        text += f"\n     repeat: python -m tests.chaos --seeds 1 --first-seed {line['seed']}{only}{naive}"
    return text


if __name__ == "__main__":
    sys.exit(main())
