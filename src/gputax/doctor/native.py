"""Check that the native parts are built: the software device, libvgpu and the GPU proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Finding
from gputax.environments.driver import BUILD, missing_parts, native_directory

TITLE = "native parts"


def native_facts() -> dict[str, Any]:
    """Return which parts are built; read locally, because the machine that starts workers needs them."""
    return {"directory": str(native_directory()), "missing": missing_parts()}


def check_native(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that `micro` on the software device and the environment bare+proxy can run."""
    native = facts.get("native")
    if native is None:
        return []
    if not native["missing"]:
        return [Finding("ok", TITLE, "software device, libvgpu, GPU proxy")]
    why = "The software device and the environments with a GPU proxy need them; models on CPU or CUDA do not."
    return [Finding("warn", f"{TITLE} are not built", ", ".join(native["missing"]), why, BUILD)]
