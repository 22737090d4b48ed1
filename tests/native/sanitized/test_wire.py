"""The transports' conformance suite with AddressSanitizer and UndefinedBehaviorSanitizer, and with ThreadSanitizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.plain.wire.test_wire import test_a_transport_conforms as test_a_transport_conforms
from tests.native.plain.wire.test_wire import test_no_wake_up_is_lost as test_no_wake_up_is_lost
from tests.native.plain.wire.test_wire import (
    test_spinning_follows_habits_and_the_budget as test_spinning_follows_habits_and_the_budget,
)


@pytest.fixture(scope="session", params=["address,undefined", "thread"])
def wire_programs(request: pytest.FixtureRequest, native_make: Callable[..., Path]) -> Path:
    """The transports' test programs, built with one set of sanitizers."""
    return native_make("wire-tests", sanitize=request.param) / "tests"
