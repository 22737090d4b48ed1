"""`gputax verify`: which mode is this GPU or pod really in, who else is on it, what limits does it see."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from gputax.cli.options import Verb, as_json, options, own, place_options, variable_options
from gputax.errors import GputaxError, PreflightError
from gputax.places import ENVIRONMENTS, LOCAL_ENVIRONMENTS, Places, environment_named, refuse_unknown
from gputax.plan.driver import DriverChoice
from gputax.plan.environment import K8S, PROXY, EnvironmentName
from gputax.plan.options import EnvironmentOptions, declared

if TYPE_CHECKING:
    from gputax.doctor.mode import Facts, Mode
    from gputax.environments.environment import Described, Evidence

# A driver that answers at all answers within seconds, also where it first wakes the GPU up.
MODE_STALL_S = 45.0


@click.command(cls=Verb)
@options(
    own(
        "env",
        f"One of {', '.join(ENVIRONMENTS)}; bare is here, wherever that is.",
        "bare",
        short=True,
        show_default=True,
        key="environment",
    ),
    own(
        "expect",
        "Fail unless this is the mode or a layer, e.g. exclusive, mps=33, mig=1g.10gb, pod.",
        None,
        multiple=True,
        short=True,
        metavar="NAME[=DETAIL]",
    ),
    declared("device", help="software: the software device; cuda: k8s requests a GPU."),
    as_json("Write the answer and the facts behind it as JSON."),
)
@place_options
@variable_options
def verify(
    environment: str, expect: tuple[str, ...], device: str, as_json: bool, options: EnvironmentOptions
) -> int:  # fmt: skip
    """Show which mode a GPU or pod is really in: seconds, and no measurement.

    Modes: proxy, software, mig, mps, limiter, vgpu, exclusive, time-slicing, alone, none. Layers: bare, container, pod,
    gvisor, kata, xen, vm, dra. Exits with 0, or with 3 if there is no usable GPU, something contradicts the mode, or
    an expectation is not met.
    """
    refuse_unknown(environment)
    from gputax.doctor.mode import mode_of, refuse_unknown_modes, unmet

    refuse_unknown_modes(expect)
    begun_s = time.monotonic()
    facts = collected(environment, options, device)
    mode = mode_of(facts)
    missing = unmet(mode, expect)
    seconds = time.monotonic() - begun_s
    if as_json:
        answer = {"environment": environment, **mode.to_dict(), "unmet": missing, "seconds": round(seconds, 3)}
        click.echo(json.dumps({**answer, "facts": facts.described.to_dict()}, indent=2))
    else:
        write_mode(mode, missing, environment, seconds, sys.stdout)
    if expect:
        return PreflightError.exit_code if missing or mode.problems else 0
    return PreflightError.exit_code if mode.name == "none" or mode.problems else 0


def collected(environment: str, options: EnvironmentOptions | None = None, device: str = "auto") -> Facts:
    """Ask a worker there, and from outside the environment, the cluster and the proxy."""
    from gputax.doctor.mode import Facts
    from gputax.environments.connection import WorkerConnection
    from gputax.environments.environment import Evidence

    def say(text: str) -> None:
        click.echo(f"gputax: {text}", err=True)

    name = EnvironmentName.parse(environment)
    # Without a device named, the machine's own driver is asked: a substitute would hide that there is no GPU.
    driver = DriverChoice(device, needed=device != "auto" or PROXY in name.layers)
    with Places(options, say) as places:
        there = environment_named(environment, driver, places)
        with WorkerConnection(there) as connection:
            described = connection.describe()
            described = described.with_driver(connection.call("describe", about="mode", stall_timeout_s=MODE_STALL_S))
            # `bare` claims nothing that evidence could contradict: it is wherever this command runs.
            evidence = there.evidence(described) if name.layers else Evidence()
            proxy = _proxy_status(environment, described)
            node, beside = _node(places, evidence) if name.place == K8S and not places.options.inside else (None, None)
    return Facts(described, evidence, node, beside, proxy)


def _proxy_status(environment: str, described: Described) -> dict[str, Any] | None:
    """Return the proxy's status, where its socket is a file of this machine."""
    from gputax.environments.proxy import ProxyAddress

    socket = (described.answer.get("mode") or {}).get("proxy_socket")
    if not socket or environment not in LOCAL_ENVIRONMENTS:
        return None
    with contextlib.suppress(GputaxError):
        return ProxyAddress(Path(socket)).status()
    return None


def _node(places: Places, evidence: Evidence) -> tuple[Any, tuple[str, ...] | None]:
    """Return the pod's node and the other pods with a GPU there; whoever may not see them gets None."""
    from gputax.sharing.kubernetes.node import gpu_nodes, others_of_run

    pods, name = places.pods(places.options), str(evidence.fact("node") or "")
    try:
        node = gpu_nodes(pods.cluster, name)[0] if name else None
        others = others_of_run(pods.cluster, name, pods.run_id) if node is not None else None
    except GputaxError:
        return None, None
    return node, None if others is None else others.with_gpu


def write_mode(mode: Mode, missing: list[str], environment: str, seconds: float, stream: TextIO) -> None:
    """Write the answer for people: the mode in one line, then what it rests on."""
    from gputax.report.exporters.console_text import Screen

    screen = Screen(stream)
    screen.say(f"gputax verify: {environment} ({seconds:.1f} s)")
    title = f"{mode.name}: {mode.text}" if not mode.text.startswith(mode.name) else mode.text
    screen.say(title, "red" if missing or mode.problems else "bold", hang=2)
    lines = {
        "device": mode.device or "none",
        "around it": ", ".join(mode.layers),
        "limits": "; ".join(f"{name}: {text}" for name, text in mode.limits.items()),
        "others": mode.others,
        "seen by": "; ".join(mode.proofs),
    }
    for name, text in lines.items():
        if text:
            screen.say(f"  {name}: {text}")
    for problem in dict.fromkeys(mode.problems):
        screen.say(f"✗ {problem}", "red", hang=2)
    for each in missing:
        screen.say(f"✗ {each}", "red", hang=2)
