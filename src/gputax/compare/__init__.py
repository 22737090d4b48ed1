"""Results on disk against each other: match their cells, estimate what differs, judge it."""
