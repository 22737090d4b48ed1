"""The GPU proxy as a layer: its server, its evidence, the environments with it."""
