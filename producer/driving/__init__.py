"""Driving a run or a sweep to its end: the driver, waiting for servers, and Ctrl-C meanwhile."""
