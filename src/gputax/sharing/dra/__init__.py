"""A GPU by dynamic resource allocation: tenants name a ResourceClaim, and no node is labelled or switched."""
