"""The process that calls agents: its supervisor, its calls in flight, its target sessions."""
