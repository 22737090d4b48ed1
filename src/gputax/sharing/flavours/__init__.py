"""Flavours: the installations that share or partition GPUs, and how each names its shares."""
