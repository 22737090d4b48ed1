"""The GPU proxy's status on the terminal: what it serves, and what each tenant uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDTH_WITHOUT_TERMINAL = 120
MOST_CALLS = 3
MIB = 1 << 20


def status_table(status: Mapping[str, Any], stream: TextIO) -> None:
    """Write the status for people."""
    console = Console(file=stream, highlight=False, markup=False, width=None if stream.isatty() else 120)
    console.print(Text(f"GPU proxy {status.get('pid')}: {status.get('device')}, through {status.get('backend')}"))
    console.print(
        Text(
            f"waiting: {status.get('wait_policy')}; free cores: {status.get('cores_free')}; "
            f"transports: {', '.join(map(str, status.get('transports') or ()))}"
        )
    )
    table = Table()
    for name in ("tenant", "process", "user", "transport"):
        table.add_column(name)
    for name in ("memory MiB", "of", "calls", "errors"):
        table.add_column(name, justify="right")
    table.add_column("most called")
    for tenant in status.get("tenants") or ():
        table.add_row(*tenant_row(tenant))
    console.print(table)
    ended = status.get("ended_tenants") or ()
    console.print(Text(f"{len(status.get('tenants') or ())} tenants connected, {len(ended)} ended (of the last 64)"))


def tenant_row(tenant: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one tenant's cells."""
    calls = {str(name): int(count) for name, count in (tenant.get("calls") or {}).items() if count}
    most = sorted(calls.items(), key=lambda item: -item[1])[:MOST_CALLS]
    limit = tenant.get("memory_limit_bytes")
    return (
        str(tenant.get("id")),
        str(tenant.get("pid")),
        str(tenant.get("uid")),
        str(tenant.get("transport")),
        f"{int(tenant.get('memory_bytes') or 0) / MIB:,.1f}",
        f"{int(limit) / MIB:,.0f}" if limit else "all",
        f"{sum(calls.values()):,}",
        f"{int(tenant.get('errors') or 0):,}",
        ", ".join(f"{name} {count:,}" for name, count in most),
    )
