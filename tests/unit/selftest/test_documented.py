"""The documented differences are those of the native code."""

from __future__ import annotations

import re
from pathlib import Path

from gputax.selftest.documented import HIDDEN_ATTRIBUTES, documented_difference

NATIVE = Path(__file__).parents[3] / "native"


def test_the_hidden_attributes_are_those_that_the_proxy_hides() -> None:
    numbers = dict(re.findall(r"(CU_DEVICE_ATTRIBUTE_\w+) = (\d+)", (NATIVE / "include/cuda_abi.h").read_text()))
    text = (NATIVE / "proxy/serve_contexts.c").read_text()
    hidden = re.findall(r"case (CU_DEVICE_ATTRIBUTE_\w+):", text[text.index("out_of_reach(int32_t") :])
    assert sorted(int(numbers[name]) for name in hidden) == sorted(HIDDEN_ATTRIBUTES)


def test_a_reason_needs_its_group_its_name_and_its_answer() -> None:
    name = "registered for kernels"
    assert "cannot be shared" in documented_difference("host-memory", name, 0, 801)
    assert documented_difference("host-memory", name, 0, 999) == ""
    assert documented_difference("host-memory", f"{name} twice", 0, 801) == ""
    assert documented_difference("copies", name, 0, 801) == ""
