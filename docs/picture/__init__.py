"""Pictures of the pages for the docs, drawn from a Prometheus' answers with matplotlib. They are not Grafana's."""
