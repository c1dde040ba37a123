"""Driving a run or a sweep to its end: the loop that both take, and waiting for servers in it."""
