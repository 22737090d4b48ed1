"""The result directory: its documents, its files and how to read older ones."""
