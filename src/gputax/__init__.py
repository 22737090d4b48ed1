"""What each layer between a model and its GPU costs, measured and proven."""

__version__ = "0.1.0"
