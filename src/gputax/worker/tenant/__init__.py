"""The tenant of a shared device: a constant load, its counters and its metrics."""
