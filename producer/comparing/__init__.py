"""Comparing finished runs: what a run is as one side of a comparison, which one a command names, and baselines."""
