"""Probes of the worker's host and device, and of disturbances during a run."""
