"""The log pass as others do it; each file is run by an interpreter that has its library, and prints its numbers."""
