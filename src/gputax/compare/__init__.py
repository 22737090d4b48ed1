"""Compare results on disk: match their cells, estimate the differences, judge them."""
