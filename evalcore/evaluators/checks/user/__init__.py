"""Simulated users of conversations: their faults, what they took, and rates without the answers that they lose."""
