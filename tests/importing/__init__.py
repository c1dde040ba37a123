"""Imports held against what the tools themselves said: recordings of theirs, of inputs that are made here."""
