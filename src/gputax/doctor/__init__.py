"""Findings about this machine or cluster, each with the command that fixes it."""
