"""Diversity of free text: how many kinds of answers a case has, and whether they collapsed to one.

`texts` says when two are the same, `near` when they are nearly so, `drawn` what a chunk keeps of them, `section` what
the report says.
"""
