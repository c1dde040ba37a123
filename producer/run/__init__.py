"""Carrying a run out: its backend, chunks, driver, and what a finished one leaves on its server."""
