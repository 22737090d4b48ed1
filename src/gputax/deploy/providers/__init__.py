"""Providers: where a deployment can run; each one creates a plan."""
