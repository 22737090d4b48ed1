"""The Kubernetes API and its objects; the only importer of the Kubernetes client."""
