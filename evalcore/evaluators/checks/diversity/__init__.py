"""Diversity of free text: how many kinds of answers a case has, and whether they collapsed to one."""
