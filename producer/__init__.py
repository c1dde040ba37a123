"""The command line: options, run folders, drivers of runs and sweeps, outputs, comparisons and pages."""
