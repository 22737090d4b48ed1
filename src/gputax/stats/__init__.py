"""Pure functions on arrays of numbers."""
