"""How requests reach a server and come back as times: connections, streams, protocols."""
