"""Looking at runs in a browser: the pages of a read-only server on this machine, over run folders and the ledger."""
