"""Ask both sides everything, one group after the other, and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gputax.environments.environment import Described
from gputax.selftest.checks import BARE, PROXIED, Check, Reply, compared
from gputax.selftest.plan import (
    MODEL_GROUP,
    RUNTIME_GROUP,
    WITHOUT_ANSWERS,
    Request,
    images,
    models,
    setup_of,
    title_of,
)
from gputax.selftest.sides import Side

Say = Callable[[str], None]


@dataclass
class Findings:
    """What was found so far; an interrupt leaves what there is."""

    checks: list[Check] = field(default_factory=list)
    evidence: dict[str, dict[str, Any]] = field(default_factory=dict)
    kernel_times: list[dict[str, Any]] = field(default_factory=list)
    device_name: str = ""

    def add(self, group: str, bare: Reply, proxied: Reply, part: str = "") -> None:
        """Compare the replies to one group, or to a part of it."""
        self.checks += compared(group, bare, proxied)
        self.evidence[part or group] = {BARE: dict(bare.evidence), PROXIED: dict(proxied.evidence)}
        self.device_name = self.device_name or bare.device_name
        self.kernel_times += [dict(row["answer"]["time"]) for row in bare.rows if _is_timed(row)]


def _is_timed(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get("answer"), Mapping) and "time" in row["answer"]


class Selftest:
    """Two sides of one driver."""

    def __init__(self, request: Request, say: Say) -> None:
        self._request = request
        self.sides = tuple(Side(name, request.driver, say) for name in (BARE, PROXIED))
        self.findings = Findings()

    def described(self) -> dict[str, Described]:
        """Start a worker on each side; where one cannot start there is nothing to compare, and this raises."""
        return {side.environment: side.described() for side in self.sides}

    def ask(self, on_step: Say) -> Findings:
        """Ask all groups, then the runtime's program and the models; `on_step` is told before each."""
        request, kernels = self._request, images()
        for group in request.groups:
            on_step(title_of(group))
            self._add(group, lambda side, group=group: side.asked(group, kernels))  # type: ignore[misc]
        for group in request.groups_without_answers:
            self._skip(group, title_of(group), WITHOUT_ANSWERS)
        if self._wants(RUNTIME_GROUP):
            self._runtime(kernels, on_step)
        if self._wants(MODEL_GROUP) and not request.quick:
            self._models(on_step)
        return self.findings

    def _wants(self, group: str) -> bool:
        return not self._request.only or group in self._request.only

    def _add(self, group: str, ask: Callable[[Side], Reply]) -> None:
        bare, proxied = (ask(side) for side in self.sides)
        self.findings.add(group, bare, proxied)

    def _skip(self, group: str, name: str, why: str) -> None:
        self.findings.checks.append(Check(group, name, "skipped", why))

    def _runtime(self, kernels: Mapping[str, str], on_step: Say) -> None:
        if not self._request.cuda_runtime:
            self._skip(RUNTIME_GROUP, "the program", "the runtime was not asked for: add --cuda-runtime")
            return
        if self._request.null_kernels:
            self._skip(RUNTIME_GROUP, "the program", WITHOUT_ANSWERS)
            return
        on_step(title_of(RUNTIME_GROUP))
        bare, proxied = (side.asked(RUNTIME_GROUP, kernels, cudart=self._request.cudart) for side in self.sides)
        if bare.is_missing:
            self._skip(RUNTIME_GROUP, "the program", bare.failure)
            return
        self.findings.add(RUNTIME_GROUP, bare, proxied)

    def _models(self, on_step: Say) -> None:
        wanted, skipped = models(self._request)
        self.findings.checks += skipped
        for model, engine in wanted:
            name = f"{model} with {engine}"
            on_step(f"{name}, {'launches of null kernels' if self._request.null_kernels else 'byte by byte'}")
            setup = setup_of(model, engine, self._request).to_dict()
            bare, proxied = (side.outputs(setup, name) for side in self.sides)
            if bare.is_missing:
                self._skip(MODEL_GROUP, name, bare.failure)
            elif not self._request.null_kernels and any(row["answer"].get("computed") is False for row in bare.rows):
                self._skip(MODEL_GROUP, name, "null kernels compute nothing that could be compared")
            else:
                self.findings.add(MODEL_GROUP, bare, proxied, name)
