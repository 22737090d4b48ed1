"""`gputax share`: tenants of one device measured together."""
