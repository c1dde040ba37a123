"""The ledger and its fleet seen from outside, in one round trip."""
