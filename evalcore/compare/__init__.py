"""Comparing two runs case by case, and deciding a gate: pure statistics, from small summaries of runs."""
