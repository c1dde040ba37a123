"""Follow a growing log: read only new lines, and keep the report of the whole log up to date.

The whole log is the concatenation of its files in order: the rotated ones, then the current one. Pieces are folded in
order, so the kept state and the state of new lines give the same report as reading everything again.
"""
