"""Sharing a GPU among pods: what each installation calls a technique, how to switch a node to it and back."""
