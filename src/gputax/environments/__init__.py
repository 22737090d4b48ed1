"""Ways to start a worker somewhere and hold its two pipes."""
