"""Vega-Lite specs as plain dicts, from pure functions: data that a test can read, and any Vega editor can open."""
