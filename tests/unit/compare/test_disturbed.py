"""No verdict comes from a cell whose machine was disturbed, whichever side it is on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal

import pytest

from gputax.compare.document import undisturbed
from gputax.compare.matching import CellPair
from gputax.results.importers.source import SourceCell
from gputax.stats.verdicts import Judgement


@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_a_verdict_does_not_come_from_a_disturbed_cell_on_either_side(verdict: Literal["pass", "fail"]) -> None:
    calm, disturbed = SourceCell(), SourceCell(disturbed=("steal 9 % (limit 5 %)",))
    for base, other, label in ((disturbed, calm, "bare"), (calm, disturbed, "k8s")):
        row: Any = SimpleNamespace(base_label="bare", other_label="k8s", pair=CellPair(base, other))
        found = undisturbed(row, Judgement(verdict, "clear"))
        assert found.verdict == "inconclusive"
        assert found.reason == (
            f"{label} was disturbed (steal 9 % (limit 5 %)); otherwise this would be a {verdict}: clear"
        )
        open_ = Judgement("inconclusive", "too wide")
        assert undisturbed(row, open_) == open_
