"""The tables that the CUDA runtime asks for, on the software device and behind a proxy."""

from __future__ import annotations

import pytest

from tests.native.proxies import PROGRAMS, Nursery

ASKED_FOR = {"GPUTAX_CUDA_RUNTIME": "1"}


@pytest.mark.parametrize("behind", ["device", "proxy"])
def test_every_table_answers_as_the_runtime_expects(nursery: Nursery, behind: str) -> None:
    environment = nursery.direct() if behind == "device" else nursery.proxy().environment()
    assert len(nursery.run(PROGRAMS / "tables.py", environment | ASKED_FOR).split()) == 7
