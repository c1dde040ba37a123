"""Processes: what one is called, how one of this project is started, and what it may take; and one for functions."""
