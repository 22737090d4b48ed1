"""A real Kubernetes on this machine for the end-to-end tests: no Docker, no registry, no mock."""
