"""Deployments of the benchmark to a cluster: plan, run, status, cost, collect, tear down."""
