"""Probes that try to reach another tenant's memory; nothing is judged here."""
