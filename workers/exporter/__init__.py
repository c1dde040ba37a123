"""The exporter: what the ledger knows, as Prometheus metrics."""
