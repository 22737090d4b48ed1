"""Generates C for libvgpu, the proxy and the software device from the table: generate.py calls.toml OUTPUT_FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import emit
from table import Call, TableError, load


def outputs(calls: list[Call]) -> dict[str, str]:
    """Every generated file and its text."""
    return {
        "cuda_calls.h": emit.prototypes(calls),
        "fronts.h": emit.front_prototypes(calls),
        "fronts.c": emit.fronts(calls),
        "calls.h": emit.header(calls),
        "call_names.c": emit.names(calls),
        "vgpu_stubs.c": emit.stubs(calls),
        "vgpu_procs.c": emit.procs(calls),
        "device_procs.c": emit.procs([call for call in calls if call.software]),
        "refused_calls.c": emit.refused(calls),
        "backend_calls.h": emit.backend(calls),
        "proxy_dispatch.c": emit.dispatch(calls),
    }


def main(arguments: list[str]) -> int:
    """Write what changed; the exit code is 1 for a bad table, 2 for bad usage."""
    if len(arguments) != 2:
        print("usage: generate.py calls.toml OUTPUT_FOLDER", file=sys.stderr)
        return 2
    source, folder = Path(arguments[0]), Path(arguments[1])
    try:
        texts = outputs(load(source))
    except (TableError, OSError) as error:
        print(f"generate.py: {error}", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
