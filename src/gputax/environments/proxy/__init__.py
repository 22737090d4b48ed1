"""The GPU proxy as a layer: its server, its evidence and the environments that use it."""
