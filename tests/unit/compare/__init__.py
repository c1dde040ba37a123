"""The statistics of comparisons and gates: known answers, brute force, and what holds of any two runs."""
