"""The documents on disk, as pydantic models: run, comparison, sharing."""
