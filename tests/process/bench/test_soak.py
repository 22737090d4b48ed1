"""A short soak: tenants one after the other, at once, under random kills; and it fails where something is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PROXY = """#!{python}
# A proxy that does not let tenants go: each one leaves a descriptor behind.
import os, sys
os.environ["LD_PRELOAD"] = "{library}"
os.execv("{proxy}", ["{proxy}", *sys.argv[1:]])
"""
LEAKING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
int accept4(int listener, struct sockaddr *address, socklen_t *size, int flags)
{
    int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
    int made = real(listener, address, size, flags);
    if (made >= 0)
        dup(0);
    return made;
}
"""


def soak(*words: str, native: Path | None = None) -> tuple[int, dict[str, Any], str]:
    variables = {**os.environ} | ({"GPUTAX_NATIVE": str(native)} if native else {})
    command = [sys.executable, "-m", "bench.soak", *words]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_nothing_is_lost_but_the_killed() -> None:
    code, found, said = soak("--tenants", "20", "--together", "16", "--seconds", "5", "--kill-every-ms", "150")
    assert code == 0, said
    assert [found[part]["lost"] for part in ("one_by_one", "together", "kills")] == [[], [], []]
    assert (found["one_by_one"]["tenants"], found["together"]["tenants"]) == (20, 16)
    assert found["together"]["while_connected"]["descriptors"] >= 16 + found["together"]["before"]["descriptors"]
    assert sum(found["kills"]["killed"].values()) >= 3
    assert found["kills"]["operations"] > 20
    assert "not a GPU" in found["device"]


def test_a_broker_that_leaks_fails_it(tmp_path: Path) -> None:
    build = ROOT / "native" / "build"
    source, library = tmp_path / "leaking.c", tmp_path / "leaking.so"
    source.write_text(LEAKING)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    for part in ("software", "vgpu"):
        (tmp_path / part).symlink_to(build / part)
    program = tmp_path / "gputax-proxy"
    program.write_text(PROXY.format(python=sys.executable, library=library, proxy=build / "gputax-proxy"))
    program.chmod(0o755)
    code, found, said = soak("--tenants", "20", "--together", "0", "--seconds", "0", native=tmp_path)
    assert code == 1
    assert any("descriptors more than at first" in line for line in found["one_by_one"]["lost"])
    assert "LOST" in said
