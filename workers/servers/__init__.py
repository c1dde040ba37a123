"""Servers, whatever they are used for: reaching one by its URL, what its errors mean, and telling of trouble."""
