"""Check the software: Python, the LoadGen wheel, ONNX Runtime, tinygrad, and that the native parts are built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Finding
from gputax.environments.driver import BUILD, SOFTWARE_DEVICE, missing_parts, native_directory, native_part
from gputax.environments.proxy import ProxyOptions, own_proxy
from gputax.errors import GputaxError
from gputax.plan.engines import TINYGRAD_VERSION

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
OLDEST_GLIBC = (2, 27)
# mlcommons-loadgen 6.0.17 on PyPI, for CPython 3.9 to 3.13.
WHEELS = (("Linux", "x86_64"), ("Darwin", "arm64"), ("Windows", "AMD64"))
OTHER_PYTHON = "python3.12 -m venv .venv && .venv/bin/pip install 'gputax[cpu]'"
# This built on Debian 12 in 56 s.
BUILD_LOADGEN = "pip install --no-binary mlcommons-loadgen mlcommons-loadgen"
PROVIDERS = {
    "CPUExecutionProvider": "CPU",
    "CUDAExecutionProvider": "CUDA",
    "TensorrtExecutionProvider": "TensorRT",
}


def check_python(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that this Python can run gputax."""
    host = facts.get("host") or {}
    text = str(host.get("python") or "unknown")
    title = f"Python {text}"
    name = host.get("python_implementation")
    if name != "CPython" or host.get("free_threaded"):
        kind = "the free-threaded build" if name == "CPython" else str(name)
        why = f"LoadGen and ONNX Runtime have wheels for standard CPython only; this is {kind}."
        return [Finding("fail", title, "not the standard CPython", why, OTHER_PYTHON)]
    if not OLDEST_PYTHON <= _version(text) <= NEWEST_PYTHON:
        why = (
            "gputax needs Python 3.11 to 3.13: it uses features of 3.11, and MLPerf LoadGen has no wheels for"
            " Python versions newer than 3.13."
        )
        return [Finding("fail", title, "outside 3.11 to 3.13", why, OTHER_PYTHON)]
    return [Finding("ok", title, str(host.get("libc") or ""))]


def check_loadgen(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that LoadGen can be imported and, if not, whether a wheel for this machine exists."""
    version = (facts.get("packages") or {}).get("mlcommons-loadgen")
    loadgen = facts.get("loadgen") or {}
    if loadgen.get("importable"):
        return [Finding("ok", f"MLPerf LoadGen {version or ''}".strip())]
    blocker, fix = wheel_blocker(facts.get("host") or {})
    if blocker:
        why = "Every scenario except `saturate` is driven by the real MLPerf LoadGen, so none can run here."
        return [Finding("fail", "MLPerf LoadGen has no wheel for this machine", blocker, why, fix)]
    return [
        Finding(
            "fail",
            "MLPerf LoadGen cannot be imported",
            str(loadgen.get("why") or ""),
            "Every scenario except `saturate` is driven by the real MLPerf LoadGen.",
            "pip install --force-reinstall mlcommons-loadgen",
        )
    ]


def wheel_blocker(host: Mapping[str, Any]) -> tuple[str, str]:
    """Return why no LoadGen wheel fits this machine, and a command that helps; both empty if one fits."""
    system, machine = str(host.get("system")), str(host.get("architecture"))
    libc, build = str(host.get("libc") or ""), _build_command(host)
    if not _version(str(host.get("python"))) <= NEWEST_PYTHON:
        return f"Its wheels end with Python 3.13; this is Python {host.get('python')}.", OTHER_PYTHON
    if (system, machine) not in WHEELS:
        flavour = " with musl" if libc == "musl" else ""
        return f"Its Linux wheels are for x86_64 only; this is {system} {machine}{flavour}.", build
    if libc.startswith("glibc") and _version(libc.partition(" ")[2]) < OLDEST_GLIBC:
        return f"Its wheels need glibc 2.27 or newer; this is {libc}.", build
    return "", ""


def check_onnxruntime(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that ONNX Runtime is installed, and list its providers."""
    packages, found = facts.get("packages") or {}, facts.get("onnxruntime") or {}
    if packages.get("onnxruntime") and packages.get("onnxruntime-gpu"):
        return [
            Finding(
                "fail",
                "onnxruntime and onnxruntime-gpu are both installed",
                f"{packages['onnxruntime']} and {packages['onnxruntime-gpu']}",
                "Both install into the same directory; the one installed last decides which providers exist.",
                "pip uninstall -y onnxruntime onnxruntime-gpu && pip install 'gputax[cuda]'",
            )
        ]
    extra = "cuda" if (facts.get("devices") or {}).get("gpus") else "cpu"
    if not found.get("importable"):
        why = "The default engine, `onnx`, needs it."
        reason = str(found.get("why") or "")
        return [Finding("fail", "ONNX Runtime cannot be imported", reason, why, f"pip install 'gputax[{extra}]'")]
    version = packages.get("onnxruntime") or packages.get("onnxruntime-gpu") or ""
    names = [PROVIDERS[name] for name in found.get("providers") or () if name in PROVIDERS]
    return [Finding("ok", f"ONNX Runtime {version}".strip(), f"providers: {', '.join(names) or 'none'}")]


def _build_command(host: Mapping[str, Any]) -> str:
    if host.get("libc") == "musl":
        return f"apk add g++ musl-dev python3-dev && {BUILD_LOADGEN}"
    return f"sudo apt-get install -y g++ python3-dev && {BUILD_LOADGEN}"


def _version(text: str) -> tuple[int, int]:
    """Return major and minor; (0, 0) if the text is not a version."""
    numbers = [int(part) for part in text.split(".")[:2] if part.isdigit()]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)


NATIVE_TITLE = "native parts"
CONFINEMENT_TITLE = "confinement of GPU proxy workers"
LANDLOCK_HELP = "cat /sys/kernel/security/lsm"


def native_facts() -> dict[str, Any]:
    """Return which parts are built; read locally, because the machine that starts workers needs them."""
    return {"directory": str(native_directory()), "missing": missing_parts()}


def check_native(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that `micro` on the software device and the environment bare+proxy can run."""
    native = facts.get("native")
    if native is None:
        return []
    if not native["missing"]:
        return [Finding("ok", NATIVE_TITLE, "software device, libvgpu, GPU proxy")]
    why = "The software device and the environments with a GPU proxy need them; models on CPU or CUDA do not."
    return [Finding("warn", f"{NATIVE_TITLE} are not built", ", ".join(native["missing"]), why, BUILD)]


# What keeps a worker that its tenant has taken over from files, programs and other processes.
WALLS = ("seccomp", "landlock_files")


def confinement_facts() -> list[str] | None:
    """Return which confinements the workers of a GPU proxy have on this machine; nothing if that cannot be tried."""
    if missing_parts():
        return None
    options = ProxyOptions(native_part(SOFTWARE_DEVICE))
    try:
        with own_proxy(options, os.environ) as address:
            found = address.status().get("confinement")
    except GputaxError:
        return None
    return [str(each) for each in found] if isinstance(found, list) else None


def check_confinement(facts: Mapping[str, Any]) -> list[Finding]:
    """Check what keeps a tenant that takes over its worker of the GPU proxy away from this machine."""
    found = facts.get("confinement")
    if found is None:
        return []
    missing = [each for each in WALLS if each not in found]
    if not missing:
        return [Finding("ok", CONFINEMENT_TITLE, ", ".join(found))]
    why = "A tenant that takes over its worker of the GPU proxy could reach files or processes of this machine."
    return [
        Finding("warn", f"{CONFINEMENT_TITLE}: no {' and no '.join(missing)}", ", ".join(found), why, LANDLOCK_HELP)
    ]


def check_tinygrad(facts: Mapping[str, Any]) -> list[Finding]:
    """Check that models can run on the software device and behind the GPU proxy."""
    version = (facts.get("packages") or {}).get("tinygrad")
    if version == TINYGRAD_VERSION:
        return [Finding("ok", f"tinygrad {version}")]
    why = "Models on the software device and behind the GPU proxy need it; models on CPU or CUDA do not."
    fix = "pip install 'gputax[tinygrad]'"
    if version is None:
        return [Finding("warn", "tinygrad is not installed", "", why, fix)]
    detail = f"the engine is written for {TINYGRAD_VERSION}"
    return [Finding("warn", f"tinygrad {version} is another version", detail, why, fix)]
