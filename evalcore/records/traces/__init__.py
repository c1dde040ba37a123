"""Traces as recorded outputs: OpenTelemetry spans in, one typed answer for each trace out."""
