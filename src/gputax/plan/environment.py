"""The name of an environment, such as `k8s+proxy`: a place and the layers on top; and every layer with its budget."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gputax.plan.runtimes import NAME, runtime_family

BARE, SSH, CONTAINER, K8S = "bare", "ssh", "container", "k8s"
PROXY, XEN = "proxy", "xen"


@dataclass(frozen=True)
class Layer:
    """Something between a model and its device that may cost time."""

    name: str
    budget_percent: float | None = None
    """How much slower it may make a workload; None: the default for a layer without its own budget."""
    shares_device: bool = False
    """It divides a device among tenants."""


# The users' targets: Kubernetes 1 %, GPU proxy 5 %, full hypervisor 10 %.
LAYERS: dict[str, Layer] = {
    layer.name: layer
    for layer in (
        Layer(CONTAINER, 1.0),
        Layer(K8S, 1.0),
        Layer(PROXY, 5.0),
        Layer(XEN, 10.0),
        Layer("time-slicing", shares_device=True),
        Layer("mps", shares_device=True),
        Layer("mig", shares_device=True),
    )
}
# Where `PLACE:RUNTIME` selects the OCI runtime: an engine's runtime, a cluster's RuntimeClass.
RUNTIME_PLACES = (CONTAINER, K8S)
# The machine itself, or a connection to another one: not a layer between a model and its device.
NO_LAYERS = (BARE, SSH)


def layer_named(name: str) -> Layer | None:
    """Return a layer by its name; an OCI runtime is one too. None for one that is not known."""
    family = runtime_family(name)
    return LAYERS.get(name) or (Layer(name, family.budget_percent) if family else None)


@dataclass(frozen=True)
class EnvironmentName:
    """An environment, by name; `str()` gives the text that documents store."""

    place: str
    """`bare`, `container`, `ssh` or `k8s`."""
    added: tuple[str, ...] = ()
    """The layers on top of the place, bottom first."""
    host: str = ""
    """The machine behind `ssh:`."""
    runtime: str = ""
    """The OCI runtime behind `container:`, the RuntimeClass behind `k8s:`; empty for the default one."""

    @classmethod
    def parse(cls, text: str) -> EnvironmentName:
        """Read `PLACE[:HOST|RUNTIME][+LAYER...]`; any text is a name: results of other tools have their own."""
        first, *added = text.split("+")
        place, _, host = first.partition(":")
        if place in RUNTIME_PLACES:
            return cls(place, tuple(added), runtime=host)
        while place == SSH and added and added[0] not in LAYERS:  # a user or host may have a plus in its name
            host = f"{host}+{added.pop(0)}"
        return cls(place, tuple(added), host)

    def __str__(self) -> str:
        which = self.host or self.runtime
        return "+".join((f"{self.place}:{which}" if which else self.place, *self.added))

    @property
    def layers(self) -> tuple[str, ...]:
        """All layers above the bare machine, bottom first: `k8s`, `gvisor` and `proxy` for `k8s:gvisor+proxy`."""
        parts = (self.place, *([self.runtime] if self.runtime else []), *self.added)
        return tuple(part for part in parts if part not in NO_LAYERS)

    @property
    def parent(self) -> EnvironmentName | None:
        """The environment without its last layer, the base for that layer's cost; None for the bare machine."""
        if self.added:
            return EnvironmentName(self.place, self.added[:-1], self.host, self.runtime)
        if self.runtime:
            return EnvironmentName(self.place)
        return EnvironmentName(BARE) if self.layers else None

    @property
    def sharing_layer(self) -> str:
        """The technique by which its tenants share a device; empty if the device is not shared."""
        last = LAYERS.get(self.layers[-1]) if self.layers else None
        return last.name if last is not None and last.shares_device else ""

    def beyond(self, base: EnvironmentName) -> tuple[str, ...]:
        """Return the layers of this environment that `base` does not have."""
        return tuple(layer for layer in self.layers if layer not in base.layers)


# Words for an environment in the names of people's files and in their `Environment:` lines.
_PLACE_WORDS = {
    K8S: re.compile(r"\b(?:k8s|kubernetes|kube|k3s|gke|pods?)\b"),
    CONTAINER: re.compile(r"\b(?:container|docker|podman)\b"),
}
_LAYER_WORDS = {
    PROXY: re.compile(r"\b(?:proxy|libvgpu|vgpu)\b"),
    XEN: re.compile(r"\b(?:xen|hypervisor|domu)\b"),
    "time-slicing": re.compile(r"\btime ?slicing\b"),
    "mps": re.compile(r"\bmps\b"),
    "mig": re.compile(r"\bmig\b"),
}
_BARE_WORDS = re.compile(r"\b(?:bare|baremetal|baseline|base|direct|native|host|local)\b")
_DENIED = re.compile(r"\b(?:no|not|without)(?: \w+)?? (?:virtuali[sz]ation|isolation|hypervisor|xen|proxy|container)\b")
# Xen and the sharing techniques are offered on Kubernetes only; a proxy also runs on the machine itself.
_PLACE_OF_LAYER = {PROXY: BARE}


def environment_in(text: str) -> str:
    """Return the environment that a text describes, e.g. `k8s+xen` for `K8s pod → Xen hypervisor → GPU`; "" if none."""
    first = text.split(",")[0].strip().lower()
    if is_environment(first):
        return first
    words = _DENIED.sub("", " ".join(re.findall(r"[a-z0-9]+", text.lower())))
    places = [place for place, pattern in _PLACE_WORDS.items() if pattern.search(words)]
    layers = [layer for layer, pattern in _LAYER_WORDS.items() if pattern.search(words)]
    if not places and not layers:
        return BARE if _BARE_WORDS.search(words) else ""
    bare = _BARE_WORDS.search(words) is not None
    place = places[0] if places else BARE if bare else _PLACE_OF_LAYER.get(layers[0], K8S)
    return "+".join((place, *layers))


def is_environment(text: str) -> bool:
    """Whether this is the name of an environment as gputax writes it: a known place and known layers."""
    name = EnvironmentName.parse(text)
    places = (SSH,) if name.host else (BARE, CONTAINER, K8S)
    runtime = not name.runtime or NAME.fullmatch(name.runtime) is not None
    return name.place in places and runtime and all(layer in LAYERS for layer in name.added)
