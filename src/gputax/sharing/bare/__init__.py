"""Tenants on this machine: CPU stand-ins and the GPU proxy."""
