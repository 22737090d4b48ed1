"""Techniques that an experiment skips, because they are impossible here and were not named."""

from __future__ import annotations

from gputax.errors import PreflightError
from gputax.measure.view import RunView
from gputax.plan.notices import Notice
from gputax.plan.techniques import TECHNIQUES, SharePlan
from gputax.results.documents.base import WarningRecord, with_notices
from gputax.sharing.place import KnowsAhead, SharedPlace

TECHNIQUE_SKIPPED = "technique-left-out"


class SkippedTechniques:
    """The skipped techniques and the reasons; a technique that was named is refused instead."""

    def __init__(self, plan: SharePlan, view: RunView, *, named: bool) -> None:
        self._plan, self._view, self._named = plan, view, named
        self._why: dict[str, PreflightError] = {}

    def __contains__(self, technique: str) -> bool:
        return technique in self._why

    @property
    def remaining(self) -> tuple[str, ...]:
        """The techniques to measure."""
        return tuple(name for name in self._plan.techniques if name not in self._why)

    def add(self, technique: str, error: PreflightError) -> None:
        """Skip it, or raise if it was named or no other technique remains."""
        if self._named or self.remaining == (technique,):
            raise error
        self._why[technique] = error
        self._view.phase(self._text(technique))

    def ask(self, place: SharedPlace) -> None:
        """Check with the place up front which techniques are impossible."""
        if isinstance(place, KnowsAhead):
            for name in self._plan.techniques:
                error = place.impossible(TECHNIQUES[name], self._plan.setup)
                if error is not None:
                    self.add(name, error)

    def warnings(self, before: tuple[WarningRecord, ...]) -> tuple[WarningRecord, ...]:
        """Return a record's warnings, with those of an earlier start replaced by this one's."""
        kept = tuple(each for each in before if each.code != TECHNIQUE_SKIPPED)
        return with_notices(kept, [Notice(TECHNIQUE_SKIPPED, self._text(name)) for name in self._why])

    def _text(self, technique: str) -> str:
        error = self._why[technique]
        return f"{technique} was skipped: {error.what}. Next: {error.next_step}"
