"""Seeing a run through: begin or join it, follow a log, close it, and finish: show, say, exit code."""
