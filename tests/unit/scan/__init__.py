"""Searching text in linear time."""
