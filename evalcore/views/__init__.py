"""What is shown of a report: metrics, panels, Markdown."""
