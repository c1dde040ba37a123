"""What the pytest plug-in does once there is a suite: its tests, and the runs that they are about."""
