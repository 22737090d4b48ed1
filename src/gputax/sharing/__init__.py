"""One device and several tenants: where they run, which technique shares it, what proves it."""
