"""The Grafana dashboards: made from what evaluators and the exporter declare (`generate.py`)."""
