"""The bill of materials: every package of an image, and no image whose packages are not the pinned ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release.sbom import BillError, bill_of, normalised, read_pins

ONE, OTHER = "a" * 64, "b" * 64
PINS = f"""
numpy==2.4.0 ; python_full_version < '3.12' \\
    --hash=sha256:{ONE} \\
    --hash=sha256:{OTHER}
numpy==2.5.4 ; python_full_version >= '3.12' \\
    --hash=sha256:{ONE}
pydantic-core==2.50.1 \\
    --hash=sha256:{ONE}
"""
DPKG = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u14
Description: GNU C Library
 more of it

Package: gone
Status: deinstall ok config-files
Version: 1
Architecture: amd64

Package: g++-12
Status: install ok installed
Architecture: amd64
Version: 2:12.2.0-14~x
"""


def image(root: Path, **packages: str) -> Path:
    site = root / "opt/gputax/venv/lib/python3.11/site-packages"
    for name, version in {"gputax": "0.1.0", "numpy": "2.4.0", "Pydantic_Core": "2.50.1", **packages}.items():
        (site / f"{name}-{version}.dist-info").mkdir(parents=True)
        licence = "License-Expression: Apache-2.0\n" if name == "gputax" else ""
        (site / f"{name}-{version}.dist-info/METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{licence}\nLong text: with a colon\n"
        )
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(DPKG)
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    return root


def bill(tmp_path: Path, pins: str = PINS, **packages: str) -> dict[str, Any]:
    return bill_of(image(tmp_path, **packages), pins, "3.11.13")


def test_the_schema_of_the_format_accepts_it(tmp_path: Path) -> None:
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill(tmp_path)))
    assert problem is None


def test_the_schema_would_refuse_another_document(tmp_path: Path) -> None:
    wrong = {**bill(tmp_path), "components": [{"name": "numpy"}]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(wrong)) is not None


def test_every_package_is_in_it_by_its_address(tmp_path: Path) -> None:
    assert [each["purl"] for each in bill(tmp_path)["components"]] == [
        "pkg:pypi/gputax@0.1.0",
        "pkg:pypi/numpy@2.4.0",
        "pkg:pypi/pydantic-core@2.50.1",
        "pkg:generic/python@3.11.13",
        "pkg:deb/debian/g++-12@2%3A12.2.0-14~x?arch=amd64",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64",
    ]


def test_pinned_hashes_and_the_product_are_in_it(tmp_path: Path) -> None:
    found = bill(tmp_path)
    numpy = next(each for each in found["components"] if each["name"] == "numpy")
    assert [each["value"] for each in numpy["properties"]] == [ONE, OTHER]
    assert found["metadata"]["component"]["version"] == "0.1.0"
    assert found["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in found["components"]]


def test_the_same_image_gives_the_same_bill(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert bill(tmp_path / "one") == bill(tmp_path / "other")


def test_a_package_that_nobody_pinned_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(BillError, match=r"requests 3\.0 is in the image, but not among the pins"):
        bill(tmp_path, requests="3.0")


def test_another_version_than_the_pinned_one_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(BillError, match=r"numpy 2\.4\.0 is in the image, the pin is 2\.3\.9 or 2\.5\.4"):
        bill(tmp_path, PINS.replace("2.4.0", "2.3.9"))


def test_an_image_without_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BillError, match="no Python package"):
        bill_of(tmp_path, PINS, "3.11.13")


def test_names_are_compared_as_the_index_does() -> None:
    assert normalised("Foo.Bar__baz") == "foo-bar-baz"
    assert read_pins("a[extra]==1 ; sys_platform == 'linux' --hash=sha256:" + ONE)["a"][0].version == "1"
