"""report.html: what is in the file, and what a browser makes of it."""
