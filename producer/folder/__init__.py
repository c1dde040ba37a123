"""The run folder: its files, who holds it, and how it is read and written."""
