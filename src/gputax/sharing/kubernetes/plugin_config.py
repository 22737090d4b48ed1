"""The ConfigMap with the device plugin's files: find it, add our files, and remove them afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gputax.errors import PreflightError, UsageError
from gputax.kubernetes.client import Cluster, ForbiddenError
from gputax.kubernetes.objects import APP, Manifest

# The names in NVIDIA's guide, used if the plugin's DaemonSet does not exist or may not be read.
DEFAULT = ("nvidia-device-plugin", "nvidia-plugin-configs")
# The volume name of the selectable files in NVIDIA's chart and operator.
FILES_VOLUME = "available-configs"
MADE_FOR = "gputax.dev/made-for"
SHARING = "sharing"


@dataclass(frozen=True)
class ConfigPlace:
    """The ConfigMap with the files."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def place_named(text: str) -> ConfigPlace:
    """Parse NAMESPACE/NAME."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise UsageError(f"{text!r} is not NAMESPACE/NAME", next_step=f"e.g. --plugin-config {'/'.join(DEFAULT)}")
    return ConfigPlace(namespace, name)


def mounted_place(daemon_sets: Iterable[Manifest]) -> ConfigPlace | None:
    """Return the ConfigMap that the device plugin mounts; None without a plugin."""
    plugins = []
    for each in daemon_sets:
        spec = ((each.get("spec") or {}).get("template") or {}).get("spec") or {}
        if any("k8s-device-plugin" in str(container.get("image")) for container in spec.get("containers") or ()):
            plugins.append(each["metadata"])
            mounted = {volume["name"]: volume["configMap"]["name"] for volume in _config_volumes(spec)}
            if mounted:
                chosen = mounted.get(FILES_VOLUME, next(iter(mounted.values())))
                return ConfigPlace(str(each["metadata"]["namespace"]), str(chosen))
    if plugins:
        raise PreflightError(
            "the device plugin mounts no ConfigMap, so sharing cannot be configured",
            where=f"DaemonSet {plugins[0]['namespace']}/{plugins[0]['name']}",
            next_step="install it with a configuration: make install-nvidia-device-plugin",
        )
    return None


def _config_volumes(spec: Manifest) -> list[Manifest]:
    """Return the volumes with configuration files; the operator's plugin has another ConfigMap for its start script."""
    volumes = [volume for volume in spec.get("volumes") or () if volume.get("configMap")]
    return [volume for volume in volumes if "entrypoint" not in volume["configMap"]["name"]]


def find_place(cluster: Cluster, given: str) -> ConfigPlace:
    """Return the plugin's ConfigMap: the given one, the mounted one, or NVIDIA's default name."""
    if given:
        return place_named(given)
    try:
        return mounted_place(cluster.list("DaemonSet", namespace="*")) or ConfigPlace(*DEFAULT)
    except ForbiddenError:
        return ConfigPlace(*DEFAULT)


class PluginFiles:
    """Our files in the plugin's ConfigMap, added next to existing ones and removed at the end."""

    def __init__(self, cluster: Cluster, place: ConfigPlace) -> None:
        self._cluster, self.place = cluster, place
        self._added: dict[str, str] = {}

    def add(self, files: Mapping[str, str]) -> Manifest | None:
        """Add missing files; return the ConfigMap as applied, or None if nothing had to change."""
        try:
            there = self._cluster.get("ConfigMap", self.place.name, namespace=self.place.namespace) if files else None
        except ForbiddenError as error:
            raise PreflightError(error.what, where=error.where, next_step=self._access()) from error
        absent = missing_files(files, (there or {}).get("data") or {}, str(self.place))
        if not absent:
            return None
        # Stored before the request, so that an interrupt can still remove them.
        self._added = {**self._added, **absent}
        try:
            return self._cluster.apply(config_map(self.place, self._added, made=there is None or _made_by_us(there)))
        except ForbiddenError as error:
            raise PreflightError(error.what, where=error.where, next_step=self._access()) from error
        except PreflightError as error:
            if "not found" not in error.what:
                raise
            raise PreflightError(
                f"the device plugin's namespace does not exist: {error.what}",
                where=f"ConfigMap {self.place}",
                next_step="use --plugin-config NAMESPACE/NAME with the ConfigMap that the plugin reads",
            ) from error

    def remove(self) -> None:
        """Remove our files, or the whole ConfigMap if it was created for them; safe to call twice."""
        if not self._added:
            return
        there = self._cluster.get("ConfigMap", self.place.name, namespace=self.place.namespace)
        if there is not None and _made_by_us(there):
            self._cluster.delete("ConfigMap", self.place.name, namespace=self.place.namespace)
        elif there is not None:
            gone: dict[str, None] = dict.fromkeys(self._added)
            self._cluster.patch("ConfigMap", self.place.name, {"data": gone}, namespace=self.place.namespace)
        self._added = {}

    def _access(self) -> str:
        words = "kubectl apply -k kubernetes/access-sharing, then: kubectl -n {} create rolebinding gputax-plugin-files"
        return words.format(self.place.namespace) + " --clusterrole=gputax-plugin-files --serviceaccount=gputax:gputax"


def missing_files(wanted: Mapping[str, str], there: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the files that do not exist yet; keep existing ones, and raise if one differs."""
    import yaml

    for key, text in wanted.items():
        if key in there and yaml.safe_load(there[key]) != yaml.safe_load(text):
            raise PreflightError(
                f"the file {key} already exists with different content",
                where=f"ConfigMap {where}",
                next_step="rename or remove it: names that begin with gputax- are reserved for gputax share",
            )
    return {key: text for key, text in wanted.items() if key not in there}


def config_map(place: ConfigPlace, files: Mapping[str, str], *, made: bool) -> Manifest:
    """Return the ConfigMap to apply; server-side apply keeps the files of others."""
    metadata: Manifest = {"name": place.name, "namespace": place.namespace}
    if made:
        metadata["labels"] = {"app.kubernetes.io/managed-by": APP}
        metadata["annotations"] = {MADE_FOR: SHARING}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(files)}


def _made_by_us(found: Manifest) -> bool:
    return ((found["metadata"].get("annotations") or {}).get(MADE_FOR)) == SHARING
