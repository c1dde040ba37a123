"""Telling people how runs and the fleet stand."""
