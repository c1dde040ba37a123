"""A server and workers of a command's own."""
