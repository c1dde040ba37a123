"""Carrying a run out: planning, driving, collecting, waiting, and what becomes of it afterwards."""
