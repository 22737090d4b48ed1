"""What a pipeline can gate on: the exit code of a comparison, the same for `duet` and `compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gputax.results.documents.comparison import Comparison

EXIT_BUDGET_EXCEEDED = 6
EXIT_INCONCLUSIVE = 7
# A cell that failed or is still missing cannot pass with the others.
LACKING = ("unfinished", "failed-cell")


def exit_code(comparison: Comparison) -> int:
    """Return 0 only where everything that decides passes; what was refused and is named by no budget does not."""
    verdicts = {row.verdict for row in comparison.metrics if row.decides}
    if "fail" in verdicts:
        return EXIT_BUDGET_EXCEEDED
    lacking = any(warning.code in LACKING for warning in comparison.warnings)
    return 0 if verdicts == {"pass"} and not lacking else EXIT_INCONCLUSIVE
