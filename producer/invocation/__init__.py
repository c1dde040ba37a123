"""A command line: its options, the same as typed values, and the run that it names."""
