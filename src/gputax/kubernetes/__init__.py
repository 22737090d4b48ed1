"""The Kubernetes API and its objects; the only package that imports the Kubernetes client."""
