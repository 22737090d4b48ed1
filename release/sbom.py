"""The bill of materials (CycloneDX 1.6) of an image: its Python packages with their pinned hashes, its Debian packages.

usage: python3 sbom.py ROOT --pins requirements/cpu.txt > sbom.cdx.json
It runs while the image is built, in the image, so it needs nothing but Python. A package that is not the pinned one
ends the build.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

PRODUCT = "gputax"
SPEC = "1.6"
DPKG_STATUS = "var/lib/dpkg/status"
SITE_PACKAGES = "opt/gputax/venv/lib/python3*/site-packages"
OS_RELEASE = "etc/os-release"
# Of the environment, not of the requirements: the base image brings them.
UNPINNED = frozenset((PRODUCT, "pip", "setuptools", "wheel"))
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class BillError(Exception):
    """The image and its pins contradict each other."""


@dataclass(frozen=True)
class Pin:
    """One line of a requirements file."""

    version: str
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """One package of the image."""

    kind: str
    """`pypi`, `deb` or `generic`."""
    name: str
    version: str
    architecture: str = ""
    licence: str = ""
    sha256: tuple[str, ...] = ()
    """Of the files from which it may have been installed."""


def main() -> int:
    """Write the bill of the image at ROOT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--pins", type=Path, required=True)
    options = parser.parse_args()
    try:
        found = bill_of(options.root, options.pins.read_text(), platform.python_version())
        print(json.dumps(found, indent=2))
    except BillError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    return 0


def bill_of(root: Path, pins: str, python_version: str) -> dict[str, Any]:
    """Return the bill of the file system below `root`, whose Python is that of this process."""
    python, debian = python_packages(root), debian_packages(root)
    if not python:
        raise BillError(f"no Python package below {root / SITE_PACKAGES}")
    pinned = _with_pins(python, read_pins(pins))
    # The base may have built its Python itself: then no package stands for it.
    interpreter = Package("generic", "python", python_version)
    return document([*pinned, interpreter, *debian], os_release(root))


def read_pins(text: str) -> dict[str, list[Pin]]:
    """Read a requirements file with hashes, by normalised name; a package may be pinned once per Python version."""
    pins: dict[str, list[Pin]] = {}
    for line in re.sub(r"\\\n", " ", text).splitlines():
        found = _PIN.match(line.strip())
        if found:
            pins.setdefault(normalised(found[1]), []).append(Pin(found[2], tuple(_HASH.findall(line))))
    return pins


def python_packages(root: Path) -> list[Package]:
    """Return the distributions in the image's environment."""
    found = []
    for path in sorted(root.glob(f"{SITE_PACKAGES}/*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(path.read_text(errors="replace"))
        licence = str(fields.get("License-Expression") or "")
        found.append(Package("pypi", normalised(str(fields["Name"])), str(fields["Version"]), licence=licence))
    return sorted(found, key=lambda package: package.name)


def debian_packages(root: Path) -> list[Package]:
    """Return the installed Debian packages."""
    path = root / DPKG_STATUS
    found = []
    for fields in _paragraphs(path.read_text(errors="replace")) if path.exists() else ():
        if fields.get("Status", "").endswith(" installed"):
            found.append(Package("deb", fields["Package"], fields["Version"], fields.get("Architecture", "")))
    return sorted(found, key=lambda package: (package.name, package.architecture))


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    for paragraph in text.split("\n\n"):
        lines = (line.partition(":") for line in paragraph.splitlines() if line and not line.startswith(" "))
        fields = {name: value.strip() for name, _, value in lines}
        if fields:
            yield fields


def _with_pins(packages: Iterable[Package], pins: Mapping[str, list[Pin]]) -> list[Package]:
    pinned = []
    for package in packages:
        listed = pins.get(package.name, [])
        pin = next((each for each in listed if each.version == package.version), None)
        if listed and pin is None:
            others = " or ".join(each.version for each in listed)
            raise BillError(f"{package.name} {package.version} is in the image, the pin is {others}")
        if pin is None and package.name not in UNPINNED:
            raise BillError(f"{package.name} {package.version} is in the image, but not among the pins")
        hashes = pin.sha256 if pin is not None else ()
        pinned.append(Package("pypi", package.name, package.version, licence=package.licence, sha256=hashes))
    return pinned


def os_release(root: Path) -> dict[str, str]:
    """Return what the image says of its distribution."""
    path = root / OS_RELEASE
    lines = (line.partition("=") for line in path.read_text().splitlines()) if path.exists() else ()
    return {name: value.strip("\"'") for name, _, value in lines}


def document(packages: list[Package], release: Mapping[str, str]) -> dict[str, Any]:
    """Return the document; the same packages give the same one, its serial number too."""
    system = release.get("ID") or "debian"
    components = [component(package, system) for package in packages]
    product = next((each for each in components if each["name"] == PRODUCT), {"version": "unknown"})
    listed = json.dumps(components, sort_keys=True)
    main = {
        "type": "container",
        "bom-ref": f"{PRODUCT}-image",
        "name": f"{PRODUCT}-image",
        "version": product["version"],
    }
    if release.get("PRETTY_NAME"):
        main["description"] = f"{PRODUCT} on {release['PRETTY_NAME']}"
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, listed)}",
        "version": 1,
        "metadata": {"component": main},
        "components": components,
        "dependencies": [{"ref": main["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }


def component(package: Package, system: str) -> dict[str, Any]:
    """Return one component; its package URL is what scanners look up."""
    name = quote(package.name, safe="+.-_")
    if package.kind == "deb":
        architecture = f"?arch={package.architecture}" if package.architecture else ""
        purl = f"pkg:deb/{system}/{name}@{quote(package.version, safe='.-_~')}{architecture}"
    else:
        purl = f"pkg:{package.kind}/{name}@{quote(package.version, safe='.-_')}"
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": package.name,
        "version": package.version,
        "purl": purl,
    }
    if package.licence:
        found["licenses"] = [{"expression": package.licence}]
    if package.sha256:
        # A pin has a hash per wheel: which of them was installed is not known afterwards.
        found["properties"] = [{"name": "gputax:pinned-sha256", "value": each} for each in package.sha256]
    return found


def normalised(name: str) -> str:
    """Return a Python package's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    sys.exit(main())
