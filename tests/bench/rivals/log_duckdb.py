"""The numbers of a log by duckdb: the keys that count as a table in memory, then windows over each agent's rows."""

from __future__ import annotations

import json
import sys

import duckdb

TABLE = """
create temp table e as select row_number() over () as i, turn, agent, try_cast(resources.stone as double) as stone,
  case when lower(decision) in ('assist', 'contribute', 'cooperate', 'join', 'support') then 1
       when lower(decision) in ('betray', 'defect', 'sabotage', 'steal') then 2 else 0 end as kind
from read_json(?, format = 'newline_delimited', columns =
  {turn: 'BIGINT', agent: 'VARCHAR', decision: 'VARCHAR', resources: 'STRUCT(stone VARCHAR)'})
"""
DROPS = """
select agent, sum(fall), count(*) from
  (select agent, lag(stone) over (partition by agent order by i) - stone as fall from e where stone is not null)
where fall > 0 group by agent
"""
WAITS = """
select sum(turn - turn_before), count(*) from
  (select kind, turn, lag(kind) over w as kind_before, lag(turn) over w as turn_before from e where kind > 0
   window w as (partition by agent order by i))
where kind = 1 and kind_before = 2 and turn > turn_before
"""


def main(path: str, threads: str) -> None:
    """Print them as JSON."""
    base = duckdb.connect()
    base.execute(f"set threads = {int(threads)}")
    base.execute(TABLE, [path])
    drops = base.execute(DROPS).fetchall()
    cooperative, turns = base.execute("select count(*) filter (kind = 1), count(distinct turn) from e").fetchall()[0]
    print(
        json.dumps(
            {
                "cooperative": cooperative,
                "turns": turns,
                "rows": dict(base.execute("select agent, count(*) from e group by agent").fetchall()),
                "given": {agent: given for agent, given, _ in drops},
                "drops": sum(count for _, _, count in drops),
                "waits": [int(found) for found in base.execute(WAITS).fetchall()[0]],
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
