"""A server that speaks chat completions and fails on command, for tests and benchmarks of live calls."""
