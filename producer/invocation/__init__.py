"""What a command line says: its options, and the same as typed values; the run that it names."""
