"""What is to be measured: suites, cells, names and the facts of each workload."""
