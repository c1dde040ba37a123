"""Sweeps over live agents: what is called is recorded first, and then evaluated like any recorded outputs."""
