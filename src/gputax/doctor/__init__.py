"""Diagnose this machine or a cluster: findings, each with the command that fixes it."""
