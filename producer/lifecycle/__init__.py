"""Seeing a run through: start or join it, watch, cancel, fetch, finish (show, say, exit code), gate and prune it."""
