"""`python -m gputax` is the same as `gputax`."""

from gputax.cli.main import main

main()
