"""What tests give to processes of pytest that they start."""

from __future__ import annotations

__all__ = ["LEAN"]

LEAN = {"PYTEST_ADDOPTS": "-p no:deepeval -p no:asyncio"}
"""Variables for a session that is not about the plug-ins of others: to load these two takes longer than to test."""
