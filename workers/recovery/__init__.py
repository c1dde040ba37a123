"""What goes on without a producer: publishing again, judging, finalising, unattended sweeps."""
