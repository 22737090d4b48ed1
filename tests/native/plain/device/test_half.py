"""f16 and bf16 on the software device: every instruction, over special values, ties and random bits, is exact."""

from __future__ import annotations

import json
from typing import Any


def test_every_instruction_is_exact(on_software: Any) -> None:
    lines = [json.loads(line) for line in on_software("half.py").stdout.splitlines()]
    assert {line["instruction"]: line["wrong"] for line in lines if line["wrong"]} == {}
    assert len(lines) > 150
    assert min(line["compared"] for line in lines) >= 4
