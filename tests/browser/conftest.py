"""One browser serves a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standins.browser import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
