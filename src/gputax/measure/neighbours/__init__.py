"""`gputax share --victim`: one tenant measured beside each kind of neighbour."""
