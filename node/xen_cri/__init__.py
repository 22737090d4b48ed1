"""xen-cri: runc's command line for Xen guests. One pod is one guest; Python's standard library only."""
