"""Environments start a worker somewhere and hold its pipes."""
