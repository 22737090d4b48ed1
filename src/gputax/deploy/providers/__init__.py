"""Where a deployment may run; each provider makes a plan."""
