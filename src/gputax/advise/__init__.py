"""Say which technique, and how many tenants, meet a target: small models fitted to measured results."""
