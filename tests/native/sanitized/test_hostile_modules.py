"""The same hostile text with AddressSanitizer and UndefinedBehaviorSanitizer in the proxy: an answer and no report."""

from __future__ import annotations

from typing import Any

import pytest

from tests.native.plain.proxy.test_hostile_modules import ANSWERS, answers_beside_a_neighbour


@pytest.mark.parametrize("case", list(ANSWERS))
def test_hostile_text_makes_no_report(sanitized: Any, case: str) -> None:
    assert answers_beside_a_neighbour(sanitized, case) == ANSWERS[case]  # the proxy's exit code tells a report
