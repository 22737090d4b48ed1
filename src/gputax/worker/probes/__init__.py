"""What the worker can tell of its host and device, and what disturbed a run."""
