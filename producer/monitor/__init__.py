"""Progress of runs and state of the fleet, for people and programs."""
