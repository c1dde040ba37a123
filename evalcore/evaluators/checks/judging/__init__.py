"""Judges: what they are asked about an answer, what was recorded of their replies, and what these come to."""
