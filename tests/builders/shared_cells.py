"""Hand-made cells of sharing, as documents and as measurements, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from gputax.environments.bare import Bare
from gputax.environments.environment import Described, Evidence
from gputax.measure.share.cell import SharedMeasurement, all_columns
from gputax.measure.share.group import Proof
from gputax.plan.cells import Setup
from gputax.plan.techniques import Entitlement, ShareCell
from gputax.results.documents.sharing import SharedCell, TenantResult
from gputax.sharing.place import Switched, Tenant
from gputax.stats.shared import TenantRuns, common_window, served, served_together

MS = 1_000_000
FACTS = {"device": "cpu", "threads": 1, "provider": "p", "precision": "fp32", "weights": "seeded", "notices": []}
HOST = {"cpu_model": "Test CPU", "kernel": "6"}
DESCRIBED = Described({"pid": 1, "host": HOST, "devices": {}, "packages": {"gputax": "0"}})


def measurement(cell: ShareCell, run_ms: float = 10.0, active: bool = True, **changes: Any) -> SharedMeasurement:
    """Return a cell whose tenants each ran 100 times for so long."""
    start = np.arange(100, dtype=np.int64) * int(run_ms * MS)
    runs = [TenantRuns(start, start + int(run_ms * MS), np.ones(100, np.int64)) for _ in range(cell.tenants)]
    window = common_window(runs, 0, 0.0)
    tenant = Tenant(Bare(), Setup("yolos-small", engine="onnx:spin=false"), Entitlement("up to all 2 cores", 1.0))
    evidence = Evidence.of("cpu-shared", [] if active else ["nobody saw it"])
    values: dict[str, Any] = {
        "cell": cell,
        "tenants": (tenant,) * cell.tenants,
        "window": window,
        "each": tuple(served(one, window) for one in runs),
        "together": served_together(runs, window),
        "jain": 1.0,
        "columns": all_columns(runs, window),
        "proof": Proof((Evidence({"active": True}),) * cell.tenants, (DESCRIBED,) * cell.tenants),
        "evidence": evidence,
        "facts": (FACTS,) * cell.tenants,
        "switched": Switched(0.5, {"node": "here"}),
        "notices": (),
    }
    return SharedMeasurement(**{**values, **changes})


def document(technique: str, tenants: int, repeat: int, mean_ms: float, **changes: Any) -> SharedCell:
    """Return the document of a cell whose tenants were all alike."""
    result = TenantResult(
        tenant=1, entitlement="all", entitlement_share=1.0, threads=1, inferences=100, throughput_per_s=1000 / mean_ms,
        mean_ms=mean_ms, samples_file="s",
    )  # fmt: skip
    values: dict[str, Any] = {
        "cell": ShareCell(technique, tenants, repeat).id, "technique": technique, "tenants": tenants, "repeat": repeat,
        "started_at": "2026-01-01", "window_s": 1.0, "overlap_share": 1.0, "aggregate_per_s": tenants * 1000 / mean_ms,
        "mean_ms": mean_ms, "p50_ms": mean_ms, "p90_ms": None, "p99_ms": None, "jain": 1.0,
        "results": tuple(result.model_copy(update={"tenant": number}) for number in range(1, tenants + 1)),
        "valid": True,
    }  # fmt: skip
    return SharedCell(**{**values, **changes})
