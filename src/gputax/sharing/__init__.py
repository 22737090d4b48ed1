"""Several tenants on one device: where they run, which technique shares the device, and the evidence for it."""
