"""Carrying a run out: its backend, chunks, what its driver does with them, and what a finished one leaves behind."""
