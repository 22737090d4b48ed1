"""Tenants in pods on one node: the node is claimed, switched, watched and restored."""
