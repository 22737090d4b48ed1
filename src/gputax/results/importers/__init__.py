"""Readers of results that others wrote."""
