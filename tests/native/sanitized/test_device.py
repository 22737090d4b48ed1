"""The software device's C suite under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_c_suite_is_clean_under_sanitizers(sanitized_build: Path) -> None:
    suite = sanitized_build / "tests" / "device_suite"
    kernels = Path(__file__).parents[3] / "native" / "kernels"
    done = subprocess.run([str(suite), str(kernels)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "Sanitizer" not in done.stderr
    assert "runtime error" not in done.stderr
