"""The command line: what is asked, run folders, driving runs and sweeps, and what is shown of them."""
