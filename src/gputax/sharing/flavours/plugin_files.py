"""The configuration files of NVIDIA's device plugin: one per technique and number of replicas; pure."""

from __future__ import annotations

from gputax.kubernetes.objects import GPU_RESOURCE, Manifest

# The plugin rejects fewer; a single tenant is one pod on several replicas.
LEAST_REPLICAS = 2
EXCLUSIVE_KEY = "gputax-exclusive"
_SECTIONS = {"time-slicing": "timeSlicing", "mps": "mps"}


def replicas_for(parts: int) -> int:
    """Return the number of shares that the plugin should offer."""
    return max(LEAST_REPLICAS, parts)


def file_key(technique: str, parts: int, gpus: int = 1) -> str:
    """Return the file's name; it contains all parameters, because the plugin reads a file once per name."""
    if technique not in _SECTIONS:
        return EXCLUSIVE_KEY
    return f"gputax-{technique}-{replicas_for(parts)}" + ("-packed" if gpus > 1 else "")


def plugin_file(technique: str, parts: int, gpus: int = 1) -> str:
    """Return the file's text."""
    import yaml

    document: Manifest = {"version": "v1"}
    if technique in _SECTIONS:
        if gpus > 1:
            # By default the plugin spreads tenants over the GPUs, so they would not share one.
            document["flags"] = {"plugin": {"sharedDevicesAllocationPolicy": "packed"}}
        document["sharing"] = {
            _SECTIONS[technique]: {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": GPU_RESOURCE, "replicas": replicas_for(parts)}],
            }
        }
    return str(yaml.safe_dump(document, sort_keys=False))


def plugin_files(parts: int, gpus: int = 1) -> dict[str, str]:
    """Return all files of an experiment at once, because a mounted ConfigMap is updated only once a minute."""
    return {file_key(name, parts, gpus): plugin_file(name, parts, gpus) for name in ("exclusive", *_SECTIONS)}
