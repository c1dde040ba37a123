"""A real Prometheus that scrapes a real exporter while real runs go and workers are killed."""
