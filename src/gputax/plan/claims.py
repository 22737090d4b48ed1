"""The claim that a number allows, and the label of its device; used in every table, chart and file."""

from __future__ import annotations

from gputax.plan import own_program, servers
from gputax.plan.engines import ENGINES

NULL_KERNELS = "null kernels"
"""What the name of a software device says whose launches take a stated time and compute nothing."""


def computes_nothing(device_name: str) -> bool:
    """Return whether the outputs of this device are not answers, and are therefore never compared or kept."""
    return NULL_KERNELS in device_name


def device_label(device: str, device_name: str) -> str:
    """Return the label that goes with every number of this device."""
    match device:
        case "cuda":
            return f"GPU ({device_name})"
        case "cpu":
            return f"CPU ({device_name}), not a GPU"
        case "software":
            return f"software device ({device_name}), not a GPU"
        case own_program.DEVICE:
            return f"{device_name}, which gputax does not see"
        case servers.DEVICE:
            return device_name if device_name.startswith("server") else f"server ({device_name})"
    return f"{device} ({device_name}), not a GPU"


def claim(
    scenario: str,
    engine: str,
    device: str,
    weights: str,
    *,
    official: bool,
    is_mlperf_model: bool,
    device_name: str = "",
    emulated: bool = False,
) -> str:
    """Return the sentence that says what the number is and what it is not."""
    kind = ENGINES.get(engine)
    own = kind.claim if kind is not None else ""
    if kind is not None and kind.says_nothing_of_devices:
        return own
    parts = [own] if own else []
    if kind is not None and kind.asks_server:
        how = "arrivals of LoadGen's Poisson schedule" if scenario == "server" else "closed loop"
        return "; ".join([*parts, f"{how}, without LoadGen"])
    if scenario == "saturate":
        parts.append("closed loop without LoadGen")
    elif official and is_mlperf_model:
        parts.append("LoadGen scenario at MLPerf's settings, not a reviewed MLPerf result")
    else:
        parts.append("LoadGen scenario below MLPerf's minimums, not an MLPerf result")
    if not is_mlperf_model and (kind is None or kind.runs_models):
        parts.append("not an MLPerf model")
    if weights == "seeded":
        parts.append("seeded weights: speed only, no accuracy")
    if computes_nothing(device_name):
        parts.append("null kernels: the cost of the control path; nothing was computed, so this is not inference")
    if device == "cpu":
        parts.append("CPU number, not a GPU's")
    if device == "software":
        parts.append("a software device's number, which says nothing of a GPU's overhead")
    if emulated:
        parts.append("emulated hypervisor: the run proves function, its times say nothing")
    return "; ".join(parts)
