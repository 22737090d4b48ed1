"""Readers of results written by other tools."""
