"""The ledger: every fact of runs and sweeps in Redis, changed one atomic script at a time."""
