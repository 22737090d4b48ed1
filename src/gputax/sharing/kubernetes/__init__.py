"""Tenants in pods of one node: the node is claimed, switched, watched and restored."""
