"""Following a log that grows: only new lines are read, and the report is at any moment that of the whole.

The whole is what ``cat`` would give of the log's files in order: those it was rotated away to, and the one it is now.
Since what a piece of a log adds up to is folded in order, the kept state of what was read and the state of the new
lines make the same answer as reading it all again.
"""
