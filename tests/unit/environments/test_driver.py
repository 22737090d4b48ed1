from __future__ import annotations

from pathlib import Path

import pytest

from gputax.doctor.software import check_native, native_facts
from gputax.environments.bare import Bare, BareProxy
from gputax.environments.driver import PROXY_PROGRAM, driver_library, given_library, library_variables, native_part
from gputax.environments.image import driver_variables
from gputax.errors import PreflightError, UsageError
from gputax.plan.driver import DriverChoice


@pytest.fixture
def unbuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    return tmp_path


def test_what_is_not_built_says_how_to_build_it(unbuilt: Path) -> None:
    with pytest.raises(PreflightError) as raised:
        native_part(PROXY_PROGRAM)
    assert raised.value.what == "the GPU proxy is not built"
    assert raised.value.where == str(unbuilt / "gputax-proxy")
    assert "make native" in raised.value.next_step
    with pytest.raises(PreflightError, match="the software device is not built"):
        driver_library(DriverChoice("software"))


def test_the_doctor_names_what_is_missing_and_the_command_that_builds_it(unbuilt: Path) -> None:
    (finding,) = check_native({"native": native_facts()})
    assert finding.status == "warn"
    assert finding.detail == "the software device, libvgpu, the GPU proxy"
    assert finding.fix_command == "make native"
    (unbuilt / "gputax-proxy").touch()
    for name in ("software", "vgpu"):
        (unbuilt / name).mkdir()
        (unbuilt / name / "libcuda.so.1").touch()
    (finding,) = check_native({"native": native_facts()})
    assert finding.status == "ok"
    assert check_native({}) == [], "a worker elsewhere is not asked for what is built here"


def test_a_library_is_named_by_file_or_by_directory(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.touch()
    other = tmp_path / "libmine.so"
    other.touch()
    assert given_library(str(tmp_path)) == library
    assert given_library(str(other)) == other
    with pytest.raises(UsageError, match="no such library"):
        given_library(str(tmp_path / "nothing.so"))


def test_a_link_leads_the_loader_to_it_and_is_gone_afterwards(tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.touch()
    with library_variables(library, {"LD_LIBRARY_PATH": "/opt/lib", "A": "b"}) as variables:
        first, rest = variables["LD_LIBRARY_PATH"].split(":")
        for name in ("libcuda.so.1", "libcuda.so"):
            assert (Path(first) / name).resolve() == library
        assert rest == "/opt/lib"
        assert variables["A"] == "b"
    assert not Path(first).exists()
    with library_variables(library, {}) as variables:
        assert ":" not in variables["LD_LIBRARY_PATH"], "an empty part would be the present directory"


def test_libvgpu_brings_its_own_nvml_and_another_library_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libvgpu, other = tmp_path / "vgpu" / "libcuda.so.1", tmp_path / "mine" / "libcuda.so.1"
    for library in (libvgpu, other):
        library.parent.mkdir()
        library.touch()
        (library.parent / "libnvidia-ml.so.1").touch()
    monkeypatch.setenv("GPUTAX_NATIVE", str(tmp_path))
    with library_variables(libvgpu, {}) as variables:
        found = Path(variables["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
        assert found.resolve() == libvgpu.parent / "libnvidia-ml.so.1"
    with library_variables(other, {}) as variables:
        assert not (Path(variables["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1").exists()


ON_RUNTIME = DriverChoice("software", runtime=True)


@pytest.mark.parametrize("place", [Bare(ON_RUNTIME), BareProxy(ON_RUNTIME)])
def test_an_engine_on_the_cuda_runtime_is_refused_with_the_option_unless_it_was_asked_for(
    place: Bare | BareProxy, unbuilt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (unbuilt / "software").mkdir()
    (unbuilt / "software" / "libcuda.so.1").touch()
    for value in (None, "0"):
        monkeypatch.delenv("GPUTAX_CUDA_RUNTIME", raising=False)
        if value is not None:
            monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", value)
        with pytest.raises(UsageError, match="only if asked to") as raised, place.surroundings():
            pass
        assert "--cuda-runtime" in raised.value.next_step
        with pytest.raises(UsageError, match="only if asked to"):
            driver_variables(ON_RUNTIME, 0)
    monkeypatch.setenv("GPUTAX_CUDA_RUNTIME", "1")
    assert driver_variables(ON_RUNTIME, 0)["GPUTAX_CUDA_RUNTIME"] == "1"
    with Bare(ON_RUNTIME).surroundings() as variables:
        assert variables["GPUTAX_CUDA_RUNTIME"] == "1"


def test_a_library_that_is_not_ours_needs_no_option(unbuilt: Path, tmp_path: Path) -> None:
    folder = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    folder.mkdir()
    (folder / "libcuda.so.1").touch()
    with Bare(DriverChoice("auto", str(folder), runtime=True)).surroundings() as variables:
        assert "LD_LIBRARY_PATH" in variables
