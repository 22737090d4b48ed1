"""`gputax run`: cells measured one after the other."""
