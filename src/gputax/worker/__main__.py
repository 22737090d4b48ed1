"""`python -m gputax.worker`: the process that an environment starts."""

from gputax.worker.main import main

main()
