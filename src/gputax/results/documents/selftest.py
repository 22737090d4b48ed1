"""The self-test's document: each check with what both sides answered, and the duets that were measured beside it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gputax.results.documents.base import Document

SELFTEST_NAME = "selftest.json"


class CheckRecord(Document):
    """One question to both sides."""

    group: str
    name: str
    status: Literal["pass", "fail", "different", "documented", "skipped"] = Field(
        description="different: both answered, and not alike; documented: so does the documentation say; fail: a side "
        "gave a wrong answer, refused what it needs, or ended"
    )
    reason: str = ""
    bare: Any = Field(default=None, description="the answer of the driver; result codes are CUDA's")
    proxied: Any = Field(default=None, description="the answer behind libvgpu and the proxy")


class KernelTime(Document):
    """How long a launch takes directly on the device, between two events, over many in a row."""

    kernel: str
    blocks: int
    threads: int
    us: float


class DuetSummary(Document):
    """A duet that was measured; its own directory has everything."""

    directory: str = Field(description="beside this file")
    workload: str
    verdict: str
    overhead: str = Field(description="of the median latency, with its interval, as the duet's table shows it")
    failure: str = Field(default="", description="why there is none")


class SelftestRecord(Document):
    """One self-test: what was compared, where, and what came out."""

    schema_version: Literal[1] = 1
    gputax_version: str
    timestamp: str
    command: str
    device: str = Field(description="as asked for: cuda or software")
    device_name: str = Field(description="as the driver says; a software device's numbers are not a GPU's")
    is_gpu: bool
    null_kernels: bool = Field(
        default=False,
        description="the device computes nothing: answers of kernels were not asked for, launches counted",
    )
    quick: bool
    cuda_runtime: bool = Field(description="whether the runtime's tables were asked for, see docs/cuda-runtime.md")
    only: tuple[str, ...] = Field(default=(), description="the groups that were asked for; empty: all")
    complete: bool = Field(description="false after an interrupt: what is not here was not compared")
    equal: bool = Field(description="nothing failed, and nothing differs beyond what the documentation says")
    counts: dict[str, int]
    checks: tuple[CheckRecord, ...]
    evidence: dict[str, dict[str, Any]] = Field(description="by group and side: that the side was what it claims to be")
    kernel_times: tuple[KernelTime, ...] = ()
    duets: tuple[DuetSummary, ...] = ()
