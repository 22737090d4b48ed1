"""Local tenants: CPU stand-ins and the GPU proxy."""
