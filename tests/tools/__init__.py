"""Tools for work on the project's own files; no part of what is tested or installed."""
