"""Which container engine and which OCI runtimes this machine has, for `container:RUNTIME`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from gputax.doctor.finding import Finding
from gputax.environments.container import ENGINES
from gputax.plan.runtimes import runtime_family

TITLE = "OCI runtimes"
# A runtime is usually not on a user's PATH; these are where packages put one.
PROGRAMS = ("runc", "crun", "youki", "runsc", "kata-runtime")
FURTHER_PLACES = "/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin:/opt/kata/bin"
ASK_TIMEOUT_S = 10.0


def runtime_facts() -> dict[str, Any]:
    """Return the engines on PATH and the first line of each runtime's `--version`; read locally."""
    engines = [engine for engine in ENGINES if shutil.which(engine)]
    found = {name: path for name in PROGRAMS if (path := shutil.which(name) or shutil.which(name, path=FURTHER_PLACES))}
    return {"engines": engines, "versions": {name: _version(path) for name, path in found.items()}}


def check_runtimes(facts: Mapping[str, Any]) -> list[Finding]:
    """List the runtimes that `container:RUNTIME` can name; a program that is another one is a warning."""
    runtimes = facts.get("runtimes")
    if not runtimes or not (runtimes["engines"] or runtimes["versions"]):
        return []
    versions: Mapping[str, str] = runtimes["versions"]
    engines = " and ".join(runtimes["engines"]) or "neither docker nor podman"
    listed = ", ".join(f"{name} {_number(text)}".strip() for name, text in versions.items()) or "no runtime found"
    findings = [Finding("ok", TITLE, f"{engines}; {listed}")]
    for name, text in versions.items():
        said = runtime_family((text.split() or [""])[0])
        if said is not None and said != runtime_family(name):
            why = f"Measurements under {name} would be those of {said.title}; gputax refuses them."
            findings.append(Finding("warn", f"The program {name} is {said.title}", text, why, f"{name} --version"))
    return findings


def _version(path: str) -> str:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0]


def _number(text: str) -> str:
    """Return the version in `runc version 1.1.5+ds1`."""
    found = re.search(r"version:?\s+(\S+)", text)
    return found[1] if found else ""
