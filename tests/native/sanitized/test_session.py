"""The frames of sessions and a guest that lies, with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.native.plain.session.test_session import (
    test_a_guest_that_breaks_the_rules_ends_its_session as test_a_guest_that_breaks_the_rules_ends_its_session,
)
from tests.native.plain.session.test_session import (
    test_frames_requests_and_places_are_read_or_refused as test_frames_requests_and_places_are_read_or_refused,
)
from tests.native.plain.session.test_session import (
    test_megabytes_of_input_come_back_whole as test_megabytes_of_input_come_back_whole,
)
from tests.native.plain.session.test_session import (
    test_output_errors_and_exit_code_come_apart as test_output_errors_and_exit_code_come_apart,
)


@pytest.fixture(scope="session")
def session_programs(native_make: Callable[..., Path]) -> Path:
    """The same programs with sanitizers."""
    return native_make("session-tests", sanitize="address,undefined") / "tests"
