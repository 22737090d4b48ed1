"""`gputax duet`: two environments measured in pairs."""
