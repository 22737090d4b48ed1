"""Ways to start a worker somewhere and hold its two pipes; the registry is literal."""

from __future__ import annotations

from gputax.environments.environment import Environment
from gputax.errors import unknown_name

ENVIRONMENTS = ("bare",)


def environment_named(name: str) -> Environment:
    """Return the environment that a name such as `bare` stands for."""
    match name:
        case "bare":
            from gputax.environments.bare import Bare

            return Bare()
    raise unknown_name("environment", name, ENVIRONMENTS)
