"""`python -m gputax` is the same as `gputax`."""

import sys

from gputax.cli.main import main

sys.exit(main())
