"""Statistics of evaluators and comparisons: exact sums, rates and their intervals, sequences, agreement, quantiles."""
