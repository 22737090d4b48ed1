"""Start a worker as a process of this machine; what was set up for it ends with it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, ExitStack

from gputax.environments.process import ChildProcess
from gputax.environments.scratch import worker_scratch


def start_local_worker(surroundings: AbstractContextManager[dict[str, str]]) -> ChildProcess:
    """Start the worker with the interpreter that runs the coordinator, under the variables of its surroundings."""
    stack = ExitStack()
    try:
        variables = {**stack.enter_context(surroundings), **stack.enter_context(worker_scratch())}
        words = [sys.executable, "-m", "gputax.worker"]
        return ChildProcess(words, {**variables, "PYTHONUNBUFFERED": "1"}, on_end=stack.close)
    except BaseException:
        stack.close()
        raise
