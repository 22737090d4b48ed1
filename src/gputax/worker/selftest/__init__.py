"""The programs of `gputax selftest`: what they ask of a driver must be answered alike directly and behind the proxy."""
