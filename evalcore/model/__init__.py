"""What is written to the wire and to disk: manifests, calls, states, canonical JSON."""
