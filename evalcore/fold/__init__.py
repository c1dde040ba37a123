"""Folding chunks' answers into a report, inline or behind a queue."""
