"""Matrix instructions on the software device: fragments lie as PTX says, sums follow the documented rule."""

from __future__ import annotations

import json
from typing import Any


def test_every_instruction_is_equal_to_its_reference(on_software: Any) -> None:
    lines = [json.loads(line) for line in on_software("matrix.py").stdout.splitlines()]
    assert {line["instruction"]: line["wrong"] for line in lines if line["wrong"]} == {}
    assert len(lines) > 70
