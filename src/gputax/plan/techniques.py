"""Sharing one device among tenants: the techniques and what each entitles to, the kinds of neighbours, the cells."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, get_args

from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import Setup, scenario_named
from gputax.plan.environment import BARE, K8S, EnvironmentName
from gputax.plan.own_model import OwnModel
from gputax.plan.own_program import OwnProgram

Bound = Literal["none", "cap", "slice"]
DEFAULT_TENANTS = (1, 3, 5, 7)
# Each tenant is a process or a pod; more than this is a typing mistake and would overload the machine.
MOST_TENANTS = 512


@dataclass(frozen=True)
class Technique:
    """One way to let several tenants use one device."""

    name: str
    title: str
    implementations: Mapping[str, str] = field(hash=False)
    """By place: on `bare` a class (`LocalTechnique`), on `k8s` an object (`NodeTechnique`), as module:name."""
    bound: Bound
    """The limit of a tenant: none, a cap on the shared device, or an exclusive slice."""
    about: str
    default: bool = False
    """Measured if `--tech` is empty."""
    stand_in: bool = False
    """Not a GPU technique: it runs the same experiment on a machine without one."""
    single: bool = False
    """Only for a single tenant."""
    expected_notices: tuple[str, ...] = ()
    """Codes of warnings that the technique causes by design: a quota is meant to throttle."""

    @property
    def places(self) -> tuple[str, ...]:
        """The places where it exists: `bare`, `k8s`."""
        return tuple(self.implementations)

    def load(self, place: str) -> Any:
        """Import its implementation in a place."""
        module, _, name = self.implementations[place].partition(":")
        return getattr(import_module(module), name)

    def environment(self, place: str) -> str:
        """Return the environment of its tenants, e.g. `k8s+mps`."""
        return str(EnvironmentName(place, (self.name,)))


TECHNIQUES: dict[str, Technique] = {
    technique.name: technique
    for technique in (
        Technique(
            "exclusive", "Exclusive", {K8S: "gputax.sharing.evidence:EXCLUSIVE"}, "none",
            "one tenant owns the whole device", single=True,
        ),
        Technique(
            "time-slicing", "Time-slicing", {K8S: "gputax.sharing.evidence:TIME_SLICING"}, "none",
            "the driver lets the tenants take turns", default=True,
        ),
        Technique(
            "mps", "MPS", {K8S: "gputax.sharing.evidence:MPS"}, "cap",
            "one CUDA server runs all tenants' kernels side by side", default=True,
        ),
        Technique(
            "mig", "MIG", {K8S: "gputax.sharing.evidence:MIG"}, "slice",
            "the hardware gives each tenant a partition of its own", default=True,
        ),
        Technique(
            "fraction", "Fraction", {K8S: "gputax.sharing.fraction:TECHNIQUE"}, "cap",
            "a library in the container, or a scheduler, gives each tenant a fraction (HAMi, volcano-vgpu, KAI)",
        ),
        Technique(
            "proxy", "GPU proxy",
            {BARE: "gputax.sharing.bare:BehindProxy", K8S: "gputax.environments.kubernetes:KubernetesProxy"}, "none",
            "one process owns the device and serves all tenants",
            expected_notices=("busy-neighbours",),  # a proxy that spins for its only tenant is expected
        ),
        Technique(
            "cpu-shared", "CPU, shared", {BARE: "gputax.sharing.bare:CpuShared"}, "none",
            "all tenants on all cores: a stand-in without a GPU",
            default=True, stand_in=True,
        ),
        Technique(
            "cpu-quota", "CPU, quota", {BARE: "gputax.sharing.bare:CpuQuota"}, "slice",
            "each tenant has its share of CPU time: a stand-in",
            default=True, stand_in=True, expected_notices=("cpu-throttled",),
        ),
    )
}  # fmt: skip
SYNONYMS = {
    "ts": "time-slicing",
    "timeslicing": "time-slicing",
    "time_slicing": "time-slicing",
    "none": "exclusive",
    "cpu": "cpu-shared",
    "shared": "cpu-shared",
    "quota": "cpu-quota",
}
DEFAULT_TECHNIQUES: dict[str, tuple[str, ...]] = {
    place: tuple(each.name for each in TECHNIQUES.values() if each.default and place in each.places)
    for place in (BARE, K8S)
}
# Where shares are asked for: those that can be asked, without what only takes turns.
ASKING_TECHNIQUES: dict[str, tuple[str, ...]] = {
    place: tuple(each for each in names if TECHNIQUES[each].bound != "none")
    for place, names in DEFAULT_TECHNIQUES.items()
}


@dataclass(frozen=True)
class Entitlement:
    """What a tenant may use; shown with every number, because unequal shares are not comparable."""

    text: str
    """E.g. `1/7 of the device`, `up to all of it`, `14 % of the SMs, 11.4 GB`, `1g.10gb`."""
    share: float | None
    """The largest part of the device that it may use; None if unknown."""


@dataclass(frozen=True)
class ShareCell:
    """One measurement: N tenants under one technique, in one repeat."""

    technique: str
    tenants: int
    repeat: int
    situation: str = ""
    """Where shares were asked for (`plan/shares.py`): who runs beside the measured tenant."""
    shares: tuple[float, ...] = ()
    """What each tenant asks for, the measured one first."""
    number: int = 0
    """The tenant that is measured, from 1; 0: all of them."""

    @property
    def id(self) -> str:
        """A name that is unique in its experiment and safe as a file name."""
        if not self.situation:
            return f"{self.technique}-t{self.tenants}-r{self.repeat}"
        return f"{self.technique}-{self.situation}{self.number or ''}-r{self.repeat}"


@dataclass(frozen=True)
class SharePlan:
    """A whole experiment: techniques x tenants x repeats of one workload."""

    place: str
    techniques: tuple[str, ...]
    tenants: tuple[int, ...]
    setup: Setup
    repeats: int = 5
    warmup_s: float = 2.0
    window_s: float = 10.0
    batch_size: int = 1
    slices: int = 0
    """Number of partitions of the device; 0: the largest number of tenants."""
    seed: int = 7

    def __post_init__(self) -> None:
        for name in self.techniques:
            if name not in TECHNIQUES:
                raise unknown_name("technique", name, TECHNIQUES)
            if self.place not in TECHNIQUES[name].places:
                here = [each.name for each in TECHNIQUES.values() if self.place in each.places]
                raise UsageError(
                    f"the technique {name} does not exist in the environment {self.place}",
                    next_step=f"use --tech {','.join(here)}, or --env {TECHNIQUES[name].places[0]}",
                )
        if not self.tenants or min(self.tenants) < 1:
            raise UsageError("the number of tenants must be at least 1", next_step="e.g. --tenants 1,3,5,7")
        most = max(self.tenants)
        if most > MOST_TENANTS:
            raise UsageError(
                f"{most} tenants are more than the maximum of {MOST_TENANTS}",
                next_step="e.g. --tenants 1,3,5,7",
            )
        if self.slices and self.slices < most:
            raise UsageError(
                f"{most} tenants do not fit on a device with {self.slices} slices",
                next_step=f"use --slices {most}, or fewer --tenants",
            )

    @property
    def parts(self) -> int:
        """The number of slices of the device."""
        return self.slices or max(self.tenants)

    def cells(self) -> tuple[ShareCell, ...]:
        """Return all cells; each repeat visits the techniques, and within each the tenants, in a new random order.

        A switch of a GPU's technique can cost minutes, so a repeat goes to each technique once.
        """
        order = random.Random(self.seed)
        found: list[ShareCell] = []
        for repeat in range(1, self.repeats + 1):
            for technique in order.sample(self.techniques, len(self.techniques)):
                for count in order.sample(self.tenants, len(self.tenants)):
                    if count == 1 or not TECHNIQUES[technique].single:
                        found.append(ShareCell(technique, count, repeat))
        return tuple(found)

    @property
    def id(self) -> str:
        """A short name for exactly this experiment, so that an interrupted one can be resumed."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()[:12]


AggressorKind = Literal["compute", "memory", "copies", "launches", "crash"]
Family = Literal["cpu", "driver"]
KINDS: tuple[AggressorKind, ...] = get_args(AggressorKind)
VICTIMS = ("single-stream",)
ENGINE = "neighbour"


@dataclass(frozen=True)
class Aggressor:
    """One kind of neighbour on one kind of device."""

    kind: AggressorKind
    family: Family
    about: str


# `cpu`: the device is the processor. `driver`: any device behind the CUDA driver API, a GPU's or the software device's.
AGGRESSORS: dict[tuple[str, str], Aggressor] = {
    (aggressor.kind, aggressor.family): aggressor
    for aggressor in (
        Aggressor("compute", "cpu", "matrix products on all cores that it may use"),
        Aggressor("memory", "cpu", "streams over buffers larger than the caches, on all cores that it may use"),
        Aggressor("copies", "cpu", "100 MB after 100 MB through a pipe, from one buffer to another"),
        Aggressor("launches", "cpu", "a storm of tiny tasks, each woken by the kernel in another thread"),
        Aggressor("crash", "cpu", "matrix products until it reads address 0 and dies by SIGSEGV; started again"),
        Aggressor("compute", "driver", "kernels of multiply-adds, one after the other"),
        Aggressor("memory", "driver", "allocations, and copies and fills within the device's memory"),
        Aggressor("copies", "driver", "100 MB to the device and 100 MB back, without end"),
        Aggressor("launches", "driver", "a storm of launches of 32 threads"),
        Aggressor("crash", "driver", "kernels until one writes where it may not, then death by SIGKILL; started again"),
    )
}


def family_of(device: str) -> Family:
    """Return the column of the table for a device."""
    return "cpu" if device == "cpu" else "driver"


def checked_kinds(names: tuple[str, ...]) -> tuple[AggressorKind, ...]:
    """Return the kinds, each once; an unknown one is a usage error."""
    if not names:
        raise UsageError("--aggressor is empty", next_step=f"e.g. --aggressor {','.join(KINDS)}")
    for name in names:
        if name not in KINDS:
            raise unknown_name("aggressor", name, KINDS)
    return tuple(kind for kind in KINDS if kind in names)


def checked_victim(scenario: str) -> str:
    """Return the victim's scenario; only closed loops of single requests can be paired with a neighbour."""
    return scenario_named(scenario, "scenario of the victim", VICTIMS)


def aggressor_setup(kind: str, tenant: Setup, device: str, threads: int, crash_after_ms: int = 0) -> Setup:
    """Return the setup that makes a tenant's worker a neighbour of this kind on the victim's device."""
    options = f"kind={kind}" + (f",crash_after_ms={crash_after_ms}" if crash_after_ms else "")
    return dataclasses.replace(
        tenant,
        workload=f"{ENGINE}:{kind}",
        engine=f"{ENGINE}:{options}",
        device=device,
        threads=threads,
        weights="",
        own=OwnModel(),
        program=OwnProgram(),
        dataset="",
        sample_count=1,
        max_batch=1,
    )
