"""What continues without a producer: publishing again, judging, finalising, unattended sweeps."""
