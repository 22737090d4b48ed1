"""What whole commands share: no process outlives its test, and one browser serves a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.standins.browser import Browser
from tests.standins.started import end_all


@pytest.fixture(autouse=True)
def _no_process_outlives_its_test() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
