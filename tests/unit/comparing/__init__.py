"""Comparing runs: what is kept of a run, which run is meant, and baselines."""
