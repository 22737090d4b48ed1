"""Everything that runs inside the measured environment, and nothing else."""
