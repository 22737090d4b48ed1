"""What the method page claims, so that each test can hold it against what it computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.shared_machine import SOON, WORLDS

PAGE = Path(__file__).resolve().parents[2] / "docs/method.md"
# Another CPU or NumPy may round the last bit otherwise and tip a run that lies on its bound.
TIPPED = 3
Publishes = Callable[[str, int], None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Simulate sharing in every world with `--full`, else in one of each kind."""
    if "world" in metafunc.fixturenames:
        worlds = WORLDS if metafunc.config.getoption("--full") else SOON
        metafunc.parametrize("world", worlds, ids=[world.name for world in worlds])


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    """Whether to simulate as many runs as the page tells of (`--full`), or enough to notice a fault."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def publishes() -> Publishes:
    """Check that the page says this number: the pattern's only group, whatever the line breaks."""
    text = " ".join(PAGE.read_text().split())

    def check(pattern: str, computed: int) -> None:
        found = re.findall(pattern, text)
        assert len(found) == 1, f"docs/method.md says {len(found)} times {pattern!r}"
        assert abs(int(found[0]) - computed) <= TIPPED, f"docs/method.md says {found[0]}, computed is {computed}"

    return check
