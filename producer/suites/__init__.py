"""Suite files: several evaluations, one run each."""
