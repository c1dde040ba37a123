"""Servers: reaching one by its URL, classifying its errors, logging lasting trouble, and listening sockets."""
