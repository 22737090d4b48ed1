"""Sharing experiments: several tenants on one device, or one tenant next to aggressors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gputax.api.variables import variables_named, variables_set
from gputax.errors import UsageError, unknown_name
from gputax.plan.cells import Setup, StrPath, absolute, device_named, precision_named
from gputax.plan.options import EnvironmentOptions
from gputax.plan.own_model import OwnModel, refuse_batch_of_own, refuse_own_model
from gputax.plan.servers import is_server, refuse_server_contradictions, server_workload

if TYPE_CHECKING:
    from gputax.measure.view import RunView
    from gputax.plan.techniques import SharePlan
    from gputax.results.documents.sharing import SharingRecord

MODEL, OPERATION = "yolos-small", "micro:operation"
# Where shares are compared, many short runs are better than few long ones, and several of them are in flight.
LIGHT_MODEL, LAUNCH = "resnet50", "micro:launch"
# With neighbours, each restart has many slots of this length: at 10 s, all five kinds took over half an hour.
WINDOW_S, NEIGHBOURS_WINDOW_S = 10.0, 2.0
BESIDE = (2,)


def share_plan(
    place: str = "bare",
    *,
    techniques: Sequence[str] = (),
    tenants: Sequence[int] = (),
    workload: str = "",
    engine: str = "",
    device: str = "auto",
    precision: str = "fp32",
    threads: int = 0,
    weights: StrPath = "",
    libcuda: StrPath = "",
    own: OwnModel | None = None,
    batch: int = 1,
    repeats: int = 5,
    window_s: float | None = None,
    warmup_s: float = 2.0,
    slices: int = 0,
    seed: int = 7,
    beside_neighbours: bool = False,
    shares: Sequence[float] = (),
    tolerance_percent: float | None = None,
    in_flight: int | None = None,
) -> SharePlan:
    """Return the plan of a sharing experiment, or raise if it is invalid.

    With `shares`, tenants ask for these parts of the device, and what they asked for is compared with what they obtain.
    """
    from gputax.plan.driver import chosen_engine
    from gputax.plan.engines import SYNONYMS as ENGINE_SYNONYMS
    from gputax.plan.engines import USER_ENGINES, refuse_unused_weights
    from gputax.plan.techniques import ASKING_TECHNIQUES, DEFAULT_TECHNIQUES, DEFAULT_TENANTS, SharePlan
    from gputax.plan.workloads import expanded, workload_facts

    named = tuple(techniques) or (ASKING_TECHNIQUES if shares else DEFAULT_TECHNIQUES)[place]
    own = own or OwnModel()
    if is_server(engine):
        refuse_server_contradictions(
            engine, (), weights=str(weights), libcuda=str(libcuda), model=own.file, device=device.removeprefix("auto"),
            precision=precision.removeprefix("fp32"),
        )  # fmt: skip
        workload = server_workload(engine, seed)
    if own.file:
        workload = own.name
    behind_proxy, light = (LAUNCH, LIGHT_MODEL) if shares else (OPERATION, MODEL)
    workloads = expanded((workload or (behind_proxy if named == ("proxy",) else light),))
    if len(workloads) != 1:
        raise UsageError("all tenants must run the same workload", next_step=f"e.g. --workload {OPERATION}")
    workload_facts(workloads[0])
    name = engine.partition(":")[0]
    if name not in ("", *USER_ENGINES):
        raise unknown_name("engine", name, USER_ENGINES, ENGINE_SYNONYMS)
    behind = ("bare+proxy",) if named == ("proxy",) else ()
    engine = chosen_engine(workloads[0], engine, behind, device, str(libcuda))
    refuse_unused_weights(absolute(weights), engine)
    refuse_own_model(own, engine=engine, weights=str(weights), precision=precision)
    refuse_batch_of_own(own, (batch,))
    count = tuple(tenants) or DEFAULT_TENANTS
    if beside_neighbours and count not in (DEFAULT_TENANTS, BESIDE):
        raise UsageError("with a neighbour there are always two tenants", next_step="drop --tenants")
    if shares and count not in (DEFAULT_TENANTS, (len(shares),)):
        raise UsageError("--shares gives the number of tenants", next_step="drop --tenants")
    if window_s is None:
        window_s = NEIGHBOURS_WINDOW_S if beside_neighbours else WINDOW_S
    if window_s <= 0:
        raise UsageError("--window must be above zero", next_step="e.g. --window 10s")
    setup = Setup(
        workloads[0],
        engine=engine,
        device=device_named(device),
        precision=precision_named(precision),
        threads=threads,
        weights=absolute(weights),
        sample_count=max(8, batch),
        max_batch=batch,
        seed=seed,
        libcuda=absolute(libcuda),
        own=own,
    )
    tenants_at_a_time = (len(shares),) if shares else BESIDE if beside_neighbours else count
    plan = SharePlan(
        place,
        named,
        tenants_at_a_time,
        setup,
        repeats=repeats,
        warmup_s=warmup_s,
        window_s=window_s,
        batch_size=batch,
        slices=slices,
        seed=seed,
    )
    if not shares:
        return plan
    from gputax.plan.shares import asking

    return asking(plan, tuple(shares), tolerance_percent, in_flight)


def share(
    plan: SharePlan | None = None,
    *,
    aggressors: Sequence[str] = (),
    victim: str = "single-stream",
    out: StrPath | None = None,
    overwrite: bool = False,
    optional: bool = False,
    stall_timeout_s: float = 0.0,
    prometheus: str = "",
    proxy_memory_mb: int = 0,
    accept_disturbed: bool = False,
    options: EnvironmentOptions | None = None,
    view: RunView | None = None,
    command: str = "",
    **variables: object,
) -> SharingRecord:
    """Measure tenants that share a device (default plan: `share_plan()`), or one tenant next to `aggressors`.

    With `optional`, a technique that is impossible here is skipped with a warning.
    """
    from gputax.measure.view import SilentView
    from gputax.places import shared_place

    plan = plan or share_plan(beside_neighbours=bool(aggressors))
    view = view or SilentView()
    directory = share_directory(plan, out, aggressors=aggressors, victim=victim)
    with variables_set(variables_named(variables)):
        place = shared_place(plan.place, options or EnvironmentOptions(), view.phase, proxy_memory_mb=proxy_memory_mb)
        try:
            if aggressors:
                from gputax.measure.neighbours.execution import NeighboursRequest, measure_neighbours

                asked = NeighboursRequest(
                    plan, victim, tuple(aggressors), directory, command, overwrite, optional, accept_disturbed
                )
                return measure_neighbours(asked, place, view)
            from gputax.measure.share.execution import ShareRequest, measure_sharing

            request = ShareRequest(
                plan, directory, command, overwrite, optional, stall_timeout_s, prometheus, accept_disturbed
            )
            return measure_sharing(request, place, view)
        finally:
            place.close()


def share_directory(
    plan: SharePlan, out: StrPath | None, *, aggressors: Sequence[str] = (), victim: str = "single-stream"
) -> Path:
    """Return the directory of an experiment: `out`, else results/share-PLACE-TIME, or this plan's unfinished one."""
    if out:
        return Path(out)
    from gputax.results.reading import SHARING
    from gputax.results.store import default_directory

    name = plan.id
    if aggressors:
        from gputax.measure.neighbours.execution import NeighboursRequest

        name = NeighboursRequest(plan, victim, tuple(aggressors), Path()).plan_id
    return default_directory(Path("results"), SHARING, name, f"share-{plan.place}")
