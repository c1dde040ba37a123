"""Put on PYTHONPATH of the processes under test; see sitecustomize."""
