"""`python -m gputax.worker` is what an environment starts."""

from gputax.worker.main import main

main()
