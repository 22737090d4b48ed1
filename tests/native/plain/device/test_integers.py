"""Packed integers, masks, asynchronous copies and barriers in shared memory, against plain Python."""

from __future__ import annotations

import json
from typing import Any


def test_every_instruction_is_equal_to_its_reference(on_software: Any) -> None:
    output = on_software("integers.py", GPUTAX_SOFT_TIMEOUT_S="10").stdout
    lines = [json.loads(line) for line in output.splitlines()]
    assert {line["instruction"]: line["wrong"] for line in lines if line["wrong"]} == {}
    assert len(lines) > 100
