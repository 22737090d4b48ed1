"""Kubernetes and clouds: the only importer of the Kubernetes client; manifests as pure functions; a cluster's life."""
