"""A deployment's life on a cluster: plan, run, status, cost, collect, tear down."""
