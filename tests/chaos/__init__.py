"""The fault suite: seeded mixtures of kills, cuts and losses, whose answer must be that of a calm run.

`python -m tests.chaos --seeds 20` runs it; `tests/chaos/faults` holds the faults, one small class each.
"""
