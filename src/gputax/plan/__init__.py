"""What to measure: suites, cells, names and the facts of each workload."""
