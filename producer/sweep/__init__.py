"""Sweeps over live agents: what is called is recorded first, then evaluated like any recorded outputs."""
