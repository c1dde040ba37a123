"""What runs on a fleet: settings, broker, ledger, worker pool, live calls, recovery, monitoring and exporter."""
