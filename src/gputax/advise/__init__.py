"""Recommend a technique and a number of tenants for a target, using small models fitted to measured results."""
