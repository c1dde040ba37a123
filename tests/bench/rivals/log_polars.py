"""The numbers of a log by polars: a streaming scan of the keys that count, then windows over each agent's rows."""

from __future__ import annotations

import json
import sys
from typing import Any

import polars as pl

COOPERATIVE = ["assist", "contribute", "cooperate", "join", "support"]
BETRAYAL = ["betray", "defect", "sabotage", "steal"]


def main(path: str) -> None:
    """Print them as JSON."""
    schema: dict[str, Any] = {
        "turn": pl.Int64,
        "agent": pl.String,
        "decision": pl.String,
        "resources": pl.Struct({"stone": pl.String}),
    }
    word = pl.col("decision").str.to_lowercase()
    kind = pl.when(word.is_in(COOPERATIVE)).then(1).when(word.is_in(BETRAYAL)).then(2).otherwise(0).cast(pl.Int8)
    stone = pl.col("resources").struct.field("stone").cast(pl.Float64)
    scan = pl.scan_ndjson(path, schema=schema)
    rows = scan.select("turn", "agent", kind=kind, stone=stone).collect(engine="streaming")
    fall = pl.col("stone").shift(1).over("agent") - pl.col("stone")
    drops = rows.filter(pl.col("stone").is_not_null()).select("agent", fall=fall).filter(pl.col("fall") > 0)
    before = [pl.col(name).shift(1).over("agent").alias(f"{name}_before") for name in ("kind", "turn")]
    settled = (
        rows.filter(pl.col("kind") > 0)
        .with_columns(before)
        .filter(
            (pl.col("kind") == 1) & (pl.col("kind_before") == 2) & (pl.col("turn") > pl.col("turn_before")),
        )
    )
    waits = settled.select(turns=(pl.col("turn") - pl.col("turn_before")).sum(), count=pl.len()).row(0)
    print(
        json.dumps(
            {
                "cooperative": rows.select((pl.col("kind") == 1).sum()).item(),
                "turns": rows["turn"].n_unique(),
                "rows": dict(rows.group_by("agent").len().rows()),
                "given": dict(drops.group_by("agent").agg(pl.col("fall").sum()).rows()),
                "drops": len(drops),
                "waits": waits,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
