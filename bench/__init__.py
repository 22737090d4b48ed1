"""Measures the tool itself: each figure is a ratio of two things measured interleaved in one run."""
